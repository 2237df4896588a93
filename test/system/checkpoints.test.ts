/**
 * Checkpoints in the whole system: a router that is stopped, or killed, and started again knows its engines
 * exactly, though they no longer repeat their whole history, and knows their speed.
 */

import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import {
  assertIndexEqualsCaches,
  RouterClient,
  startEngines,
  startProcess,
  startTestRouter,
  type ThreadEngine,
  until,
} from './fleet.ts'

/** Blocks enough that nothing is evicted, and a replay that soon lacks the beginning. */
const ENGINE = { blocks: 2000, replayBatchesMax: 20 }

async function setUp(
  t: Test,
): Promise<{ engines: readonly ThreadEngine[]; directory: string; urls: string[] }> {
  const directory = await mkdtemp(join(tmpdir(), 'homing-checkpoints-'))
  const { engines, stop } = await startEngines([ENGINE, ENGINE])
  t.teardown(async () => {
    await stop()
    await rm(directory, { recursive: true, force: true })
  })
  return { engines, directory, urls: engines.map(({ url }) => url) }
}

/** Thirty prompts for each engine, pinned: how many batches each publishes is not left to chance. */
async function serve(router: RouterClient, engines: readonly ThreadEngine[], first: number): Promise<void> {
  const ids = await Promise.all(engines.map(async ({ url }) => (await router.worker(url)).instance_id))
  for (let i = first; i < first + 60; i++) {
    const prompt = Array.from({ length: 70 }, (_, k) => 33 + ((i * 7 + k * k) % 90))
    const nvext = { backend_instance_id: ids[i % ids.length] }
    const body = { model: 'homing-sim', prompt, max_tokens: 1, nvext }
    const { status, text } = await router.send('/v1/completions', { body })
    if (status !== 200) throw new Error(text)
  }
  await router.caughtUp(engines)
}

const checkpoints = async (router: RouterClient) =>
  (await router.workers()).map(({ worker_keys: [key] }) => key!.events!.checkpoint!)

/** Where the prefill speed of each worker is from, and how often it was seen. */
const learned = async (router: RouterClient) =>
  (await router.workers()).map(({ worker_keys: [key] }) => {
    const { source, observations } = key!.learned!.prefill
    return { source, observations }
  })

t.test('a router that is stopped and started again is exact at once', async t => {
  const { engines, directory, urls } = await setUp(t)
  const speeds = join(await mkdtemp(join(tmpdir(), 'homing-learned-')), 'learned')
  t.teardown(() => rm(dirname(speeds), { recursive: true, force: true }))
  const options = ['--checkpoint-dir', directory, '--router-learned-file', speeds]
  const first = await startTestRouter(urls, options)
  const before = new RouterClient(first.url)
  await before.trusted()
  await serve(before, engines, 0)
  const speedsBefore = await learned(before)
  t.ok(speedsBefore.every(({ observations }) => observations > 0))
  // A slow disk has all of the grace.
  await first.stop(60_000)
  t.equal((await readdir(directory)).length, 2)

  const second = await startTestRouter(urls, options)
  t.teardown(() => second.stop(0))
  const after = new RouterClient(second.url)
  await after.trusted()
  t.strictSame(await learned(after), speedsBefore, 'what was learned of the engines')
  t.ok(
    (await checkpoints(after)).every(({ resumed_sequence: sequence }) => sequence !== null && sequence > 20),
  )
  t.ok((await assertIndexEqualsCaches(after, engines)) > 100)
  await serve(after, engines, 40)
  await assertIndexEqualsCaches(after, engines)

  // The same without one, and with one that is damaged: nothing is guessed.
  await second.stop(0)
  const [damaged] = await readdir(directory)
  const path = join(directory, damaged!)
  const bytes = await readFile(path)
  await writeFile(path, bytes.subarray(0, bytes.length - 5))
  await writeFile(speeds, (await readFile(speeds)).subarray(0, 100))
  const third = await startTestRouter(urls, [...options, '--log-level', 'silent'])
  t.teardown(() => third.stop(0))
  const last = new RouterClient(third.url)
  await until('one is exact, and one partial', async () => {
    const keys = (await last.workers()).map(({ worker_keys: [key] }) => key!.trust)
    return keys.sort().join() === 'exact,partial' ? true : undefined
  })
  t.ok((await learned(last)).every(({ source }) => source === 'prior'))
  const refusals = (await checkpoints(last)).flatMap(({ refusal }) => (refusal === null ? [] : [refusal]))
  t.equal(refusals.length, 1)
  t.match(refusals[0], /^cannot use a checkpoint: \d+ bytes of \d+ are there$/)
  await third.stop(0)
})

t.test('a router that is killed goes on from the last one that it wrote', async t => {
  const { engines, directory, urls } = await setUp(t)
  const options = ['--host', '127.0.0.1', '--port', '0', '--checkpoint-dir', directory]
  const argv = [...options, '--checkpoint-interval', '100ms', ...urls.flatMap(url => ['--worker', url])]
  const first = await startProcess('router', argv)
  t.teardown(() => first.kill('SIGKILL'))
  const before = new RouterClient(first.url)
  await before.trusted()
  await serve(before, engines, 0)
  const states = await Promise.all(engines.map(({ state }) => state()))
  const last = new Map(states.map((state, i) => [urls[i], state.ranks[0]!.nextSequence - 1]))
  await until('both are written', async () => {
    const workers = await before.workers()
    const isWritten = workers.every(
      ({ url, worker_keys: [key] }) => key!.events!.checkpoint!.saved_sequence === last.get(url),
    )
    return isWritten ? true : undefined
  })
  first.kill('SIGKILL')
  await first.ended

  const second = await startTestRouter(urls, ['--checkpoint-dir', directory])
  t.teardown(() => second.stop(0))
  const after = new RouterClient(second.url)
  await after.trusted()
  t.ok((await assertIndexEqualsCaches(after, engines)) > 100)
})

t.test('a directory that cannot be used is told before anything is started', async t => {
  const { directory, urls } = await setUp(t)
  const file = join(directory, 'file')
  await writeFile(file, '')
  await t.rejects(startTestRouter(urls, ['--checkpoint-dir', file]), {
    code: 'HOMING_LISTENER_CHECKPOINT_DIRECTORY',
  })
})
