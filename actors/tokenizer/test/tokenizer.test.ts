/** The tokenizer as an actor, and its readers on threads of their own. */

import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { loadTokenizer, PromptTokenizer } from '@homing/tokenization'
import t, { type Test } from 'tap'
import { vocabularyAtHand } from '../../../packages/tokenization/scripts/vocabularies.ts'
import { fleetOf } from './fleet.ts'
import { ASK, ids, start, TINY, untilTrue, WAIT_MS_MAX } from './tokenizer-world.ts'

const SKIP_LIMITS =
  process.platform === 'linux' && spawnSync('prlimit', ['--version']).status === 0
    ? false
    : 'only Linux has prlimit(1) and /proc'

t.test('a prompt is tokenized on a thread of its own', async t => {
  const { read, threads } = await start(t, { tokenizers: [TINY] }, {})
  const result = await read({ model: 'm', prompt: 'hello hello' })
  const expected = (await PromptTokenizer.load(TINY)).encodeText('hello hello')
  t.match(result, { kind: 'read', request: { model: 'm', tokenizedBy: 'router' } })
  if (result.kind === 'read') t.strictSame([...(result.request.tokenIds ?? [])], [...expected])
  t.equal(threads.length, 1)
})

t.test('what cannot be read is refused with the field at fault', async t => {
  const { read } = await start(t, { tokenizers: [TINY] }, {})
  t.match(await read({ model: 'm', messages: 'no list' }), {
    kind: 'refused',
    error: { code: 'HOMING_OPENAI_INVALID_REQUEST' },
    param: 'messages',
  })
})

t.test('one request more than may wait is refused; those that wait are read', async t => {
  const { read } = await start(t, { tokenizers: [TINY], queueMax: 2 }, {})
  // One is with the thread, two wait.
  const results = await Promise.all(ids(4).map(() => read({ model: 'm', prompt: 'hello' })))
  t.strictSame(
    results.map(result => (result.kind === 'read' ? result.request.tokenizedBy : result.error.code)),
    ['router', 'router', 'router', 'HOMING_TOKENIZER_OVERLOADED'],
  )
})

t.test('a request that waits too long for a thread is dropped; the one that is read is not', async t => {
  const { system, read, threads } = await start(t, { tokenizers: [TINY] }, {})
  const long = { model: 'm', prompt: 'long '.repeat(250_000) }
  // One word, which takes seconds: it is being read until the others have waited too long.
  const slow = { model: 'm', prompt: 'abcdefghij'.repeat(400_000) }
  // Each thread runs before time passes: one has 30 s to start.
  await read({ model: 'm', prompt: 'hello' })
  await read(long)
  const [first, second, third] = [read(slow), read(long), read(long)]
  await system.advance(WAIT_MS_MAX)
  for (const dropped of [third, second]) {
    t.match(await dropped, {
      kind: 'refused',
      error: { code: 'HOMING_TOKENIZER_OVERLOADED', message: /no tokenizer thread was free within 60000 ms/ },
    })
  }
  t.match(await first, { kind: 'read', request: { tokenizedBy: 'router' } })
  t.match(await read(long), { kind: 'read', request: { tokenizedBy: 'router' } })
  t.equal(threads.length, 2, 'no thread was lost: one for long bodies, one for others')
})

t.test('a long prompt of ids beside a body goes to the reader of long bodies', async t => {
  const { read, threads } = await start(t, { tokenizers: [TINY] }, {})
  t.match(await read({ model: 'm' }, new Int32Array(1000)), { kind: 'read' })
  const before = threads.length
  t.match(await read({ model: 'm' }, new Int32Array(2 ** 22)), { kind: 'read' })
  t.equal(threads.length, before + 1)
})

t.test('a thread that dies takes the request it had, and no other', async t => {
  const { read, threads } = await start(t, { tokenizers: [TINY] }, {})
  await read({ model: 'm', prompt: 'hello' })
  const lost = read({ model: 'm', prompt: 'long '.repeat(200_000) })
  const others = ids(5).map(() => read({ model: 'm', prompt: 'hello' }))
  const ended = once(threads[0]!, 'exit')
  await threads[0]!.terminate()
  await ended
  t.match(await lost, { kind: 'refused', error: { code: 'HOMING_INTERNAL_UNEXPECTED' } })
  t.strictSame(
    (await Promise.all(others)).map(result => (result.kind === 'read' ? result.request.tokenizedBy : result)),
    ['router', 'router', 'router', 'router', 'router'],
  )
  t.equal(threads.length, 2, 'the thread was replaced')
})

t.test('there are never more threads than the machine has cores', async t => {
  const { read, threads } = await start(t, { tokenizers: [TINY], threads: 64 }, {})
  await Promise.all(ids(20).map(() => read({ model: 'm', prompt: 'hello' })))
  t.ok(threads.length <= availableParallelism())
})

t.test('each of its threads runs before it says that it has started', async t => {
  const { whenStarted, threads } = await start(t, { threads: 64 }, {})
  t.equal(await whenStarted(), undefined)
  t.equal(threads.length, availableParallelism())
})

t.test('requests are read in the order in which they came', async t => {
  const { read } = await start(t, { tokenizers: [TINY] }, {})
  const order: number[] = []
  await Promise.all(ids(8).map(id => read({ model: 'm', prompt: 'hello' }).then(() => order.push(id))))
  t.strictSame(order, ids(8))
})

/** No further file can be opened from `use` on, until `give` is called. */

function openFiles(t: Test): { use(): void; give(): void } {
  const limits = spawnSync('prlimit', [
    '--pid',
    String(process.pid),
    '--nofile',
    '--output',
    'SOFT',
    '--noheadings',
  ])
  const limit = (files: string): void => {
    spawnSync('prlimit', ['--pid', String(process.pid), `--nofile=${files}:`])
  }
  const before = limits.stdout.toString().trim()
  const used: number[] = []
  const give = (): void => {
    for (const file of used.splice(0)) closeSync(file)
  }
  // A terminated thread gives its files back, and they are used up in the same turn.
  limit(String(Math.max(...readdirSync('/proc/self/fd').map(Number)) + 64))
  t.teardown(() => {
    give()
    limit(before)
  })
  return {
    use() {
      try {
        for (;;) used.push(openSync('/dev/null', 'r'))
      } catch (thrown) {
        t.equal((thrown as NodeJS.ErrnoException).code, 'EMFILE')
      }
    },
    give,
  }
}

t.test(
  'where no thread can be started requests are refused at once with the reason, and read when one can',
  { skip: SKIP_LIMITS },
  async t => {
    const { read, whenStarted, threads } = await start(t, { tokenizers: [TINY] }, {})
    t.equal(await whenStarted(), undefined)
    // The tokenizer is loaded, so that the thread has nothing else to do.
    t.match(await read({ model: 'm', prompt: 'hello' }), { kind: 'read' })
    const files = openFiles(t)
    const lost = read({ model: 'm', prompt: 'long '.repeat(200_000) })
    const waiting = ids(3).map(() => read({ model: 'm', prompt: 'hello' }))
    threads[0]!.prependListener('exit', () => files.use())
    await threads[0]!.terminate()
    t.match(await lost, { kind: 'refused', error: { code: 'HOMING_INTERNAL_UNEXPECTED' } })
    const refusal = {
      kind: 'refused',
      error: {
        code: 'HOMING_TOKENIZER_NO_THREAD',
        message:
          'cannot read the request: no tokenizer thread can be started: Worker initialization failure: EMFILE',
      },
    }
    for (const result of await Promise.all(waiting)) t.match(result, refusal, 'it waited')
    t.match(await read({ model: 'm', prompt: 'hello' }), refusal, 'it came later')
    t.match(await whenStarted(), refusal.error)
    files.give()
    t.match(await read({ model: 'm', prompt: 'hello' }), { kind: 'read', request: { tokenizedBy: 'router' } })
    t.equal(await whenStarted(), undefined)
  },
)

t.test(
  'a tokenizer that could not be opened for want of files is opened when there are some',
  { skip: SKIP_LIMITS },
  async t => {
    const { ref, read, whenStarted } = await start(t, { tokenizers: [TINY] })
    t.equal(await whenStarted(), undefined)
    const files = openFiles(t)
    files.use()
    ref.tell({ type: 'fleet', fleet: fleetOf({}) })
    t.match(await read({ model: 'm', prompt: 'hello' }), {
      request: { tokenizedBy: 'nobody', textBlocksReason: /cannot be read: EMFILE/ },
    })
    files.give()
    t.match(await read({ model: 'm', prompt: 'hello' }), { request: { tokenizedBy: 'router' } })
  },
)

t.test(
  'a thread that dies while it loads a tokenizer or reads a body in lent memory is replaced',
  async t => {
    const found = vocabularyAtHand('gpt2')
    if ('missing' in found) return t.pass('no vocabulary', { skip: found.missing })
    const { directory } = found
    const { system, ref, read, whenStarted, threads } = await start(t, { tokenizers: [directory] })
    t.equal(await whenStarted(), undefined)
    ref.tell({ type: 'fleet', fleet: fleetOf({}) })
    await system.settle()
    await threads[0]!.terminate()
    const status = () => ref.ask({ type: 'tokenizers' }, ASK)
    // The next word of the fleet has it loaded again, by the thread that takes the place.
    await untilTrue(system, async () => {
      ref.tell({ type: 'fleet', fleet: fleetOf({}) })
      return (await status()).tokenizers[0]?.path === 'own'
    })
    const tokenizer = await PromptTokenizer.load(directory)
    // Longer than what is copied, so each lies in memory that is lent to the thread.
    const prompts = ids(6).map(id => `hello ${id} `.repeat(5000))
    const lost = read({ model: 'm', prompt: 'lost '.repeat(200_000) })
    const others = prompts.map(prompt => read({ model: 'm', prompt }))
    await threads.at(-1)!.terminate()
    t.match(await lost, { kind: 'refused', error: { code: 'HOMING_INTERNAL_UNEXPECTED' } })
    for (const [i, result] of (await Promise.all(others)).entries()) {
      t.match(result, { request: { tokenizedBy: 'router' } })
      if (result.kind === 'read') t.strictSame(result.request.tokenIds, tokenizer.encodeText(prompts[i]!))
    }
    t.equal(threads.length, 3)
  },
)

t.test('requests do not wait for a prompt of megabytes, which a thread of its own reads', async t => {
  const { ref, read, threads } = await start(t, { tokenizers: [TINY] }, {})
  t.match(await read({ model: 'm', prompt: 'hello' }), { kind: 'read' })
  t.equal(threads.length, 1)
  // One word of the text: nothing in it can be cut.
  const long = ids(2).map(id => read({ model: 'm', prompt: 'abcdefghij'.repeat(500_000) + id }))
  let isLongRead = false
  void Promise.race(long).then(() => {
    isLongRead = true
  })
  for (let i = 0; i < 20; i++)
    t.match(await read({ model: 'm', prompt: `hello ${i}` }), { request: { tokenizedBy: 'router' } })
  t.notOk(isLongRead, 'twenty were read meanwhile')
  for (const result of await Promise.all(long)) t.match(result, { request: { tokenizedBy: 'router' } })
  t.equal(threads.length, 2, 'one thread for both')
  const { promptCacheBytes } = await ref.ask({ type: 'tokenizers' }, ASK)
  t.ok(promptCacheBytes <= 1e7, `${promptCacheBytes}`)
})

t.test('where the thread of long bodies dies, only the request that it had is lost', async t => {
  const { read, threads } = await start(t, { tokenizers: [TINY] }, {})
  const byRouter = { kind: 'read', request: { tokenizedBy: 'router' } }
  t.match(await read({ model: 'm', prompt: 'hello' }), byRouter)
  t.match(await read({ model: 'm', prompt: 'long '.repeat(250_000) }), byRouter)
  t.equal(threads.length, 2)
  const lost = read({ model: 'm', prompt: 'abcdefghij'.repeat(500_000) })
  const waits = read({ model: 'm', prompt: 'longer '.repeat(200_000) })
  const short = read({ model: 'm', prompt: 'hello again' })
  const ended = once(threads[1]!, 'exit')
  await threads[1]!.terminate()
  await ended
  t.match(await lost, { kind: 'refused', error: { code: 'HOMING_INTERNAL_UNEXPECTED' } })
  t.match(await short, byRouter)
  t.match(await waits, byRouter)
  t.equal(threads.length, 3, 'it was replaced, and the other one kept')
})

t.test(
  'the words that readers keep stay within their setting, and are told with the shared tables',
  async t => {
    const wordTableBytes = 2 ** 16
    const { ref, read } = await start(t, { tokenizers: [TINY], wordTableBytes }, {})
    const status = () => ref.ask({ type: 'tokenizers' }, ASK)
    // Once it is loaded, this thread makes its own before the first prompt.
    while ((await status()).wordTableBytes === 0);
    // Of words that nobody has seen, some ten times as many as there is room for.
    const words = ids(20_000).map(id => `w${id.toString(36)}`)
    const before = await read({ model: 'm', prompt: words[0] })
    const few = await status()
    t.match(await read({ model: 'm', prompt: words.join(' ') }), { request: { tokenizedBy: 'router' } })
    const many = await status()
    t.ok(few.wordTableBytes <= many.wordTableBytes, `${few.wordTableBytes}`)
    t.ok(many.wordTableBytes <= 2 * wordTableBytes, `on this thread and another: ${many.wordTableBytes}`)
    t.equal(many.vocabularyBytes, (await loadTokenizer(TINY)).tables!.memory.byteLength)
    t.strictSame(await read({ model: 'm', prompt: words[0] }), before, 'what was forgotten is encoded anew')
  },
)

t.test('its threads end with it', async t => {
  const { system, ref, read, threads } = await start(t, { tokenizers: [TINY] }, {})
  await read({ model: 'm', prompt: 'hello' })
  const ended = once(threads[0]!, 'exit')
  await system.stop(ref)
  await ended
  t.equal(threads[0]!.threadId, -1)
})
