/**
 * The example engines, in TypeScript and in Python, from their files as a user starts them: a router over
 * each, by the line that it prints, knows exactly what it holds, whatever it has evicted, and after a reset;
 * and so does one that starts late.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { seededRandom } from '@homing/base'
import t, { type Test } from 'tap'
import { found, packagedPython, pythonEnvironment, skipOf } from '../python/interpreter.ts'
import { RouterClient, send, startTestRouter, until } from './fleet.ts'

const ROOT = join(import.meta.dirname, '../..')
const BLOCK = 16
const IN_TYPESCRIPT = 'packages/publisher/examples/engine.ts'
const IN_PYTHON = 'clients/python/examples/engine.py'
const CACHE_BLOCKS = 256
const ROUNDS = 40
const python = packagedPython()
t.setTimeout(300_000)

/** Starts an engine; answers the worker that its first line names, and that line. */
async function started(t: Test, command: string, args: readonly string[], env: NodeJS.ProcessEnv) {
  const child = spawn(command, args, { env, cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(async () => {
    child.kill('SIGINT')
    if (child.exitCode === null && child.signalCode === null) await once(child, 'close')
  })
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string]
  const [, worker] = /^homing router --worker '(http:\S+)'$/.exec(line) ?? []
  t.ok(worker, line)
  return worker!
}

/** What the engine holds: full blocks by all text up to their end, the least recently used first. */
class NaiveCache {
  readonly held = new Set<string>()

  use(tokens: readonly number[]): number {
    const blocks = Array.from({ length: Math.floor(tokens.length / BLOCK) }, (_, i) =>
      String(tokens.slice(0, (i + 1) * BLOCK)),
    )
    const missing = blocks.findIndex(block => !this.held.has(block))
    for (const block of blocks.toReversed()) {
      this.held.delete(block)
      this.held.add(block)
    }
    for (const block of this.held) {
      if (this.held.size <= CACHE_BLOCKS) break
      this.held.delete(block)
    }
    return Math.min(missing < 0 ? blocks.length : missing, Math.floor((tokens.length - 1) / BLOCK))
  }
}

async function served(t: Test, worker: string): Promise<void> {
  const running = await startTestRouter([worker], [])
  t.teardown(() => running.stop(0))
  const router = new RouterClient(running.url)
  await router.trusted('exact')
  const cache = new NaiveCache()
  const random = seededRandom(1)
  const said = Buffer.from('abcdefghijklmnopqrstuvwxyz')

  let evicted = 0
  for (let round = 0; round < ROUNDS; round++) {
    // Some prompts begin alike, some are long: three of those fill the cache.
    const words = Array.from({ length: 1 + Math.floor(random.next() * 180) }, (_, i) =>
      i < 60 ? `word ${round % 3} ${i}` : `word ${Math.floor(random.next() * 4)}`,
    )
    const text = words.join(' ').slice(0, 1800)
    const chat = `user: ${text}\nassistant: `
    const form = (['text', 'tokens', 'chat'] as const)[round % 3]!
    const tokens = [...Buffer.from(form === 'chat' ? chat : text)]
    const stream = round % 2 === 1
    const common = { model: 'toy', max_tokens: 20, stream, stream_options: { include_usage: true } }
    const body =
      form === 'chat'
        ? { ...common, messages: [{ role: 'user', content: text }] }
        : { ...common, prompt: form === 'text' ? text : tokens }
    const hit = cache.use(tokens)
    const answer = await router.send(form === 'chat' ? '/v1/chat/completions' : '/v1/completions', { body })
    t.equal(answer.status, 200, answer.text)
    const usage = stream
      ? answer.text
          .split('\n\n')
          .filter(event => event.includes('"usage"'))
          .map(event => JSON.parse(event.slice('data: '.length)))
          .at(-1)?.usage
      : answer.json.usage
    const overlap = Number(answer.headers['x-homing-overlap-blocks'])
    t.strictSame(
      [overlap, usage.prompt_tokens_details.cached_tokens / BLOCK, usage.completion_tokens],
      [hit, hit, 20],
      `round ${round}: predicted and cached`,
    )
    t.equal(answer.headers['x-homing-trust'], 'exact')
    const whole = [...tokens, ...said.subarray(0, 20)]
    const before = cache.held.size
    cache.use(whole)
    if (cache.held.size === CACHE_BLOCKS && before === CACHE_BLOCKS) evicted++
    const asked = { model: 'toy', token_ids: whole }
    await until('the index has what the engine holds', async () => {
      const { json } = await router.send('/v1/router/find_matches', { method: 'POST', body: asked })
      const [key] = (await router.workers())[0]!.worker_keys
      const isThere = json[0]?.overlap_blocks === Math.floor((whole.length - 1) / BLOCK)
      return isThere && key!.blocks_held === cache.held.size ? true : undefined
    })
  }
  t.ok(evicted > 10, `${evicted} rounds with a full cache`)

  const late = await startTestRouter([worker], [])
  t.teardown(() => late.stop(0))
  const other = new RouterClient(late.url)
  await other.trusted('exact')
  t.strictSame([...(await other.indexedBlocks()).values()], [...(await router.indexedBlocks()).values()])
  t.equal([...(await other.indexedBlocks()).values()][0]!.length, CACHE_BLOCKS)

  const refused = await router.send('/v1/completions', { body: { model: 'toy', prompt: 'x'.repeat(3000) } })
  t.equal(refused.status, 400)

  const prompt = 'asked before the reset and after it '.repeat(8)
  const ask = async () => {
    const { status, json, headers } = await router.send('/v1/completions', { body: { model: 'toy', prompt } })
    t.equal(status, 200)
    return [
      Number(headers['x-homing-overlap-blocks']),
      json.usage.prompt_tokens_details.cached_tokens / BLOCK,
      headers['x-homing-trust'],
    ]
  }
  const held = async (one: RouterClient) => (await one.workers())[0]!.worker_keys[0]!.blocks_held
  await ask()
  const blocks = Math.floor((prompt.length - 1) / BLOCK)
  t.strictSame(await ask(), [blocks, blocks, 'exact'])
  t.equal((await send(new URL(worker).origin, '/reset_prefix_cache', { method: 'POST' })).status, 200)
  for (const one of [router, other])
    await until('the reset is known', async () => ((await held(one)) === 0 ? true : undefined))
  t.strictSame(await ask(), [0, 0, 'exact'], 'AllBlocksCleared is published')
}

t.test('the engine in TypeScript is served exactly', async t => {
  const { NODE_OPTIONS: _, ...env } = process.env
  await served(t, await started(t, process.execPath, [IN_TYPESCRIPT], env))
})

t.test('the engine in Python is served exactly', { skip: skipOf(python) }, async t => {
  await served(t, await started(t, found(python).path, [IN_PYTHON], pythonEnvironment()))
})

t.test('each has a hundred lines, comments included, at most', async t => {
  for (const path of [IN_TYPESCRIPT, IN_PYTHON]) {
    const lines = readFileSync(join(ROOT, path), 'utf8').split('\n')
    // Empty lines, and those of brackets alone, are none to be read.
    t.ok(lines.filter(line => /\w/.test(line)).length <= 100, path)
    t.ok(
      lines.every(line => line.length <= 110),
      path,
    )
  }
})
