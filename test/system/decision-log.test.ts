/**
 * The decision log of a router that is a process of its own: killed, started again, ended in order, started
 * where no log can be.
 */

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type DecisionLogLine, readLogLine } from '@homing/trace'
import t, { type Test } from 'tap'
import { RouterClient, startEngines, startProcess, TINY_TOKENIZER, until } from './fleet.ts'

const MAIN = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))
const SECRET = 'a word of a client that nobody else may read'

async function start(t: Test) {
  const directory = await mkdtemp(join(tmpdir(), 'homing-decisions-'))
  t.teardown(() => rm(directory, { recursive: true }))
  const path = join(directory, 'decisions.jsonl')
  const { engines, stop } = await startEngines([{ tokenizer: TINY_TOKENIZER }])
  t.teardown(stop)
  const startRouter = async (file = path) => {
    const workers = engines.flatMap(({ url }) => ['--worker', url])
    const argv = ['--host', '127.0.0.1', '--port', '0', '--decision-log', file]
    const router = await startProcess('router', [...argv, ...workers, '--tokenizer', TINY_TOKENIZER])
    const client = new RouterClient(router.url)
    await client.trusted()
    return { process: router, client }
  }
  return { directory, path, engines, startRouter }
}

async function ask(client: RouterClient, prompt: string): Promise<void> {
  const body = {
    model: 'homing-sim',
    prompt,
    max_tokens: 4,
    stream: true,
    stream_options: { include_usage: true },
  }
  const headers = { 'x-dynamo-session-id': SECRET }
  assert.equal((await client.send('/v1/completions', { body, headers })).status, 200)
}

/** Whole lines of a file; throws for one that cannot be read. */
function linesOf(text: string): readonly DecisionLogLine[] {
  return text
    .split('\n')
    .slice(0, -1)
    .map(line => {
      const read = readLogLine(line)
      assert.notEqual(typeof read, 'string', line)
      return read as DecisionLogLine
    })
}

t.test('a router that is killed leaves its lines, and the next one goes on behind them', async t => {
  const { path, startRouter } = await start(t)
  const first = await startRouter()
  const prompt = `${SECRET} ${'and more '.repeat(40)}`
  await ask(first.client, prompt)
  await ask(first.client, prompt)
  await until('both are written', async () =>
    linesOf(await readFile(path, 'utf8')).length === 3 ? true : undefined,
  )
  first.process.kill('SIGKILL')
  await first.process.ended
  const killed = await readFile(path, 'utf8')
  const second = await startRouter()
  await ask(second.client, prompt)
  second.process.kill('SIGTERM')
  t.equal(await second.process.ended, 0)
  const text = await readFile(path, 'utf8')
  t.ok(text.startsWith(killed))
  const lines = linesOf(text)
  t.strictSame(
    lines.map(({ kind }) => kind),
    ['header', 'request', 'request', 'header', 'request'],
    'what was settled before the end is written',
  )
  const [, two] = lines.flatMap(line => (line.kind === 'request' ? [line.request] : []))
  t.match(two, { outcome: 'ok', sessionId: '0', outputTokens: 4 })
  t.ok(two!.cachedTokens! > 0 && two!.firstTokenMs! > 0)
  for (const word of SECRET.split(' ').filter(({ length }) => length > 4)) t.notMatch(text, word)
})

t.test('a path where no log can be ends the start with one line', async t => {
  const { directory, engines } = await start(t)
  const argv = ['router', '--host', '127.0.0.1', '--port', '0', '--decision-log', directory]
  const { code, stderr } = await new Promise<{ code: unknown; stderr: string }>(resolve => {
    execFile(process.execPath, [MAIN, ...argv, '--worker', engines[0]!.url], (error, _, stderr) =>
      resolve({ code: error?.code, stderr }),
    )
  })
  t.equal(code, 1)
  t.match(stderr, `cannot write the decision log to ${directory}: it is a directory; name a file in it`)
})
