/**
 * What a router and a worker of token ids do together, over each request plane, whatever language the worker
 * is written in.
 */

import { RefuseRequestError } from '@homing/worker'
import type { Test } from 'tap'
import { chunksOf, until } from './fleet.ts'
import {
  chatIdsOf,
  END_ID,
  idsOf,
  MODEL,
  over,
  overEachPlane,
  type Plane,
  routerOver,
  type Script,
  type StartScripted,
} from './token-world.ts'

export const TEXT = 'Hello 😀 from 東京, then a STOP here and more\n'
export const MESSAGES = [{ role: 'user', content: 'Which way is home?' }]
const textOf = (chunks: readonly { choices: { delta?: { content?: string }; text?: string }[] }[]): string =>
  chunks.map(({ choices: [choice] }) => choice?.delta?.content ?? choice?.text ?? '').join('')

/** `skipOf`: why there are no such workers here. */
export function tokenWorkerCases(
  root: Test,
  start: StartScripted,
  skipOf: (plane: Plane) => string | false = () => false,
): void {
  type Run = Parameters<typeof overEachPlane>[2]
  const each = (title: string, run: Run) => overEachPlane(root, title, run, skipOf)

  each('answers are those of any engine', async (t, plane, nats) => {
    const ids = await idsOf(TEXT)
    const promptIds = await chatIdsOf(MESSAGES)
    const scripts: Script[] = [
      { ids: [...ids, END_ID, ...ids] },
      { ids: [...ids, END_ID, ...ids], pieceTokens: 5 },
    ]
    const running = await start(t, scripts, over(plane, nats))
    const { worker } = running
    const client = await routerOver(t, plane, [running], nats)
    const chat = async (more: object) =>
      client.send('/v1/chat/completions', { body: { model: MODEL, messages: MESSAGES, ...more } })

    for (const seed of [0, 1]) {
      const whole = await chat({ seed, temperature: 0.5 })
      t.equal(whole.status, 200, whole.text)
      t.equal(whole.headers['content-type'], 'application/json')
      t.match(whole.json, {
        object: 'chat.completion',
        model: MODEL,
        choices: [{ index: 0, message: { role: 'assistant', content: TEXT }, finish_reason: 'stop' }],
        usage: { prompt_tokens: promptIds.length, completion_tokens: ids.length + 1 },
      })
      const asked = worker.requests.at(-1)!
      t.strictSame(asked.tokenIds, promptIds, 'the worker gets the ids of the prompt')
      t.strictSame(asked.samplingOptions, { seed, temperature: 0.5 })
      t.strictSame(asked.eosTokenIds, [END_ID])

      const stream = await chat({ seed, stream: true, stream_options: { include_usage: true } })
      t.match(stream.headers['content-type'], /^text\/event-stream/)
      const chunks = chunksOf(stream.text)
      t.match(chunks[0], {
        object: 'chat.completion.chunk',
        choices: [{ delta: { role: 'assistant', content: '' } }],
      })
      t.equal(textOf(chunks), TEXT)
      t.notMatch(stream.text, /\ufffd/, 'no piece ends inside a character')
      t.equal(chunks.at(-2).choices[0].finish_reason, 'stop')
      t.match(chunks.at(-1).usage, { prompt_tokens: promptIds.length, completion_tokens: ids.length + 1 })
      t.equal(new Set(chunks.map(({ id }) => id)).size, 1)
    }

    const stops = await chat({ stop: ['a ST', 'here'] })
    t.match(stops.json.choices[0], {
      message: { content: TEXT.slice(0, TEXT.indexOf('a ST')) },
      finish_reason: 'stop',
      stop_reason: 'a ST',
    })
    await until('what is behind the stop is not generated', () =>
      worker.ended === worker.requests.length ? true : undefined,
    )
    const included = await chat({ stop: 'STOP', include_stop_str_in_output: true, stream: true })
    t.equal(textOf(chunksOf(included.text)), TEXT.slice(0, TEXT.indexOf('STOP') + 4))
    const late = await chat({ stop: 'Hello', min_tokens: ids.length, max_tokens: ids.length })
    t.match(late.json.choices[0], { message: { content: TEXT }, finish_reason: 'length' })
    const byId = await chat({ stop_token_ids: [ids[3]] })
    t.match(byId.json, {
      choices: [{ finish_reason: 'stop', stop_reason: ids[3] }],
      usage: { completion_tokens: 4 },
    })

    const twenty = await client.send('/v1/completions', {
      body: {
        model: MODEL,
        prompt: [1, 2, 3],
        max_tokens: ids.length + 5,
        ignore_eos: true,
        return_token_ids: true,
      },
    })
    t.match(twenty.json, {
      object: 'text_completion',
      choices: [{ finish_reason: 'length', text: `${TEXT}Hello` }],
    })
    t.strictSame(twenty.json.choices[0].token_ids, [...ids, END_ID, ...ids].slice(0, ids.length + 5))
    t.strictSame(worker.requests.at(-1)!.tokenIds, [1, 2, 3])
    const short = await client.send('/v1/completions', { body: { model: MODEL, prompt: 'x', stream: true } })
    t.equal(
      chunksOf(short.text).at(-1).choices[0].finish_reason,
      'length',
      'a completion has 16 tokens by default',
    )
    t.equal(worker.requests.at(-1)!.stopConditions.maxTokens, 16)
  })

  each('a client that leaves ends what is generated for it', async (t, plane, nats) => {
    const ids = await idsOf('one two three four')
    const running = await start(t, [{ ids, holdsAt: 3 }], over(plane, nats))
    const { worker } = running
    const client = await routerOver(t, plane, [running], nats)
    const body = { model: MODEL, messages: MESSAGES, stream: true }
    const left = await client.open('/v1/chat/completions', { body })
    left.body.on('error', () => {})
    await until('it waits', () => (worker.held === 1 ? true : undefined))
    left.body.destroy()
    await until('its signal has aborted', () => (worker.cancelled === 1 ? true : undefined))
    worker.go()
    await until('its generator has ended', () => (worker.ended === 1 ? true : undefined))
    await until('nothing is open', async () => ((await running.openRequests()) === 0 ? true : undefined))
  })

  each('a stream whose worker dies goes on elsewhere, token by token', async (t, plane, nats) => {
    const ids = [...(await idsOf(TEXT)), END_ID]
    const half = ids.length >> 1
    const first = await start(t, [{ ids, holdsAt: half }], over(plane, nats))
    const client = await routerOver(t, plane, [first], nats, ['--migration-limit', '2'])
    const body = { model: MODEL, messages: MESSAGES, stream: true, return_token_ids: true }
    const cut = await client.open('/v1/chat/completions', { body })
    const text = cut.body.text()
    await until('it waits in the middle', () => (first.worker.held === 1 ? true : undefined))
    const other = await start(t, [{ ids }], over(plane, nats))
    if (plane !== 'nats') await client.send('/workers', { body: { url: other.url } })
    await until('the other is up', async () =>
      (await client.workers()).filter(({ state }) => state === 'up').length === 2 ? true : undefined,
    )
    await first.die()
    const chunks = chunksOf(await text)
    t.equal(textOf(chunks), TEXT, 'one answer')
    t.strictSame(
      chunks.flatMap(({ choices: [choice] }) => choice?.token_ids ?? []),
      ids,
      'no token is missing, none is there twice',
    )
    t.equal(chunks.filter(({ choices: [choice] }) => choice?.delta?.role !== undefined).length, 1)
    const [asked] = other.worker.requests
    t.equal(asked!.resumedTokens, half)
    t.strictSame(asked!.tokenIds, [...(await chatIdsOf(MESSAGES)), ...ids.slice(0, half)])
    const { decisions } = (await client.send('/decisions')).json as {
      decisions: { delivered: { outcome: string } }[]
    }
    t.equal(decisions.length, 2)
  })

  each('a worker that drains finishes what it has, and gets nothing more', async (t, plane, nats) => {
    const ids = [...(await idsOf(TEXT)), END_ID]
    const running = await start(t, [{ ids, holdsAt: 2 }], over(plane, nats))
    const { worker } = running
    const client = await routerOver(t, plane, [running], nats, ['--migration-limit', '0'])
    const answer = client.send('/v1/chat/completions', {
      body: { model: MODEL, messages: MESSAGES, stream: true },
    })
    await until('it is under way', () => (worker.held === 1 ? true : undefined))
    const closed = running.close(60_000)
    worker.go()
    t.equal(textOf(chunksOf((await answer).text)), TEXT)
    await closed
  })

  each('what one worker refuses or fails before its first token, another takes', async (t, plane, nats) => {
    const ids = [...(await idsOf(TEXT)), END_ID]
    const failures: readonly Script[] = [
      { ids, failsAt: 0 },
      { ids, failsAt: 0, failure: new RefuseRequestError('its queue is full') },
    ]
    const one = await start(t, failures, over(plane, nats))
    const two = await start(t, [{ ids }, { ids }], over(plane, nats))
    const client = await routerOver(t, plane, [one, two], nats, ['--router-mode', 'round-robin'])
    for (const seed of [0, 1, 0, 1]) {
      const answer = await client.send('/v1/chat/completions', {
        body: { model: MODEL, messages: MESSAGES, seed },
      })
      t.equal(answer.json.choices[0].message.content, TEXT)
    }
    t.ok(one.worker.requests.length > 0)
  })

  each('what fails later ends the answer with an error', async (t, plane, nats) => {
    const ids = await idsOf(TEXT)
    const running = await start(t, [{ ids, failsAt: 3 }], over(plane, nats))
    const client = await routerOver(t, plane, [running], nats, ['--migration-limit', '0'])
    const body = { model: MODEL, messages: MESSAGES, stream: true, return_token_ids: true }
    const cut = await client.send('/v1/chat/completions', { body })
    t.match(cut.text, /"error".*out of memory/)
    t.notMatch(cut.text, /\[DONE\]/)
    t.strictSame(
      [...cut.text.matchAll(/"token_ids":\[(\d+)\]/g)].map(([, id]) => Number(id)),
      ids.slice(0, 3),
      'what was generated before has come',
    )
  })

  each('a worker that dies alone ends its streams with an error', async (t, plane, nats) => {
    const ids = [...(await idsOf(TEXT)), END_ID]
    const running = await start(t, [{ ids, holdsAt: 3 }], over(plane, nats))
    const client = await routerOver(t, plane, [running], nats)
    const body = { model: MODEL, messages: MESSAGES, stream: true, return_token_ids: true }
    const cut = client.send('/v1/chat/completions', { body })
    await until('it is under way', () => (running.worker.held === 1 ? true : undefined))
    await running.die()
    const { text } = await cut
    t.match(text, /"error"/)
    t.notMatch(text, /\[DONE\]/)
    const after = await client.send('/v1/chat/completions', { body: { ...body, stream: false } })
    t.equal(after.status, 503, after.text)
    t.equal(after.json.error.code, 'no_worker')
  })

  each('a long prompt comes whole', async (t, plane, nats) => {
    const running = await start(t, [{ ids: [5, END_ID] }], { ...over(plane, nats), contextLength: 2 ** 20 })
    const client = await routerOver(t, plane, [running], nats)
    // More than a worker lets come at once.
    const prompt = Array.from({ length: 300_000 }, (_, i) => 1000 + (i % 400))
    const answer = await client.send('/v1/completions', { body: { model: MODEL, prompt, max_tokens: 5 } })
    t.equal(answer.status, 200, answer.text.slice(0, 300))
    t.strictSame(running.worker.requests[0]!.tokenIds, prompt)
  })
}
