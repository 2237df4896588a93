/** Clients that leave or read slowly, and the memory of their bodies: nothing is held for those that left. */

import type { PlaceResult } from '@homing/actors/queue'
import t from 'tap'
import { start } from './gateway-world.ts'
import { DECISION, JSON_TYPE, READ } from './sample-records.ts'
import { utf8 } from './utf8.ts'
import { data, end, head } from './worker-exchange.ts'

t.test('a client that leaves while its request is read costs nothing', async t => {
  const { system, send, script, calls, log } = await start(t)
  const replies: (() => void)[] = []
  script.read = ({ reply }) => {
    replies.push(() => reply({ kind: 'read', request: READ }))
    return undefined
  }
  const call = send('POST', '/v1/completions', { body: '{}' })
  await system.settle()
  call.call.abort()
  await system.settle()
  for (const reply of replies) reply()
  await system.settle()
  t.strictSame(calls, [])
  t.strictSame([log.asked, log.settled], [[], []])
})

t.test('a client that leaves while its request is placed has the place settled at once', async t => {
  const { system, send, script, calls, log, settled } = await start(t)
  const { promise, resolve } = Promise.withResolvers<PlaceResult>()
  script.decide = () => promise
  const call = send('POST', '/v1/completions', { body: '{}' })
  await system.settle()
  t.equal(log.asked.length, 1)
  call.call.abort()
  await system.settle()
  resolve({ kind: 'decided', decision: DECISION })
  await system.settle()
  t.strictSame([calls.length, settled()], [0, ['decision-1']])
  t.match(log.settled, [{ delivery: { outcome: 'aborted' }, wasTaken: false }])
})

t.test('a client that leaves during its answer aborts the call upstream, once', async t => {
  const { system, ask, answer, called, log, settled } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  await answer(head(), data('x'))
  call.call.abort()
  await system.settle()
  t.ok(called().isGone)
  t.strictSame(settled(), ['decision-1'])
  t.match(log.settled, [{ delivery: { outcome: 'aborted', status: 200 }, wasTaken: true }])
})

t.test('a client that reads slowly pauses the call upstream until it has read', async t => {
  const { system, ask, answer, called } = await start(t)
  const call = await ask('POST', '/v1/completions', { body: '{}' })
  call.call.pause()
  await answer(head())
  let written = 0
  while (written < 1000 && called().http.write(utf8('a'.repeat(40_000)))) {
    written++
    await system.settle()
  }
  t.ok(written < 1000, 'the worker is told to wait')
  let isDrained = false
  called().http.onDrain(() => {
    isDrained = true
  })
  await system.advance('119s')
  t.strictSame([call.end, isDrained], ['open', false], 'that is no silence of the worker')
  call.call.resume()
  await system.settle()
  t.ok(isDrained)
  await answer(end)
  t.equal(call.body.length, (written + 1) * 40_000)
  t.equal(call.end, 'complete')
})

t.test('the memory of a body of its own is given up with its request, unless a call reads it', async t => {
  for (const usesBody of [false, true]) {
    let body: Uint8Array | undefined
    const { ask, called, answer, settled } = await start(
      t,
      // In shared memory there is no room for a page more.
      { bodyBytesMax: 100_000, bodiesBytesMax: 51_000 },
      {
        read: message => {
          body = message.body
          return { kind: 'read', request: READ }
        },
      },
      { usesBody: () => usesBody },
    )
    const text = `{"model":"m","messages":[{"role":"user","content":"${'x'.repeat(50_000)}"}]}`
    const call = await ask('POST', '/v1/chat/completions', { body: text })
    t.equal(called().body, text)
    t.equal(body?.length, text.length, 'as long as it is open')
    await answer(head(200, JSON_TYPE), data('{}'), end)
    t.strictSame([call.body, call.end], ['{}', 'complete'])
    t.strictSame(settled(), ['decision-1'])
    t.equal(body?.length, usesBody ? text.length : 0)
  }
})
