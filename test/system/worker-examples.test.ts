/**
 * The example workers of docs/worker.md, in both languages, as a reader starts them: the printed line starts
 * a router, and clients of the OpenAI API get answers.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import {
  CLIENT,
  found,
  packagedPython,
  plainPython,
  pythonEnvironment,
  skipOf,
} from '../python/interpreter.ts'
import { chunksOf, RouterClient, startTestRouter, TINY_TOKENIZER, until } from './fleet.ts'
import { chatIdsOf } from './token-world.ts'

const MODEL = 'mirror'
const MESSAGES = [{ role: 'user', content: 'Which way is home?' }]
const NODE_EXAMPLE = join(import.meta.dirname, '../../packages/worker/examples/worker.ts')
const PYTHON_EXAMPLE = join(CLIENT, 'examples/token_worker.py')

/** A started example, and the words of the line that it prints behind `homing router`. */
async function startExample(
  t: Test,
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<{ readonly child: ChildProcess; readonly url: string; readonly argv: readonly string[] }> {
  const child = spawn(command, [...args.slice(0, 1), TINY_TOKENIZER, ...args.slice(1)], {
    env,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  for await (const line of createInterface({ input: child.stdout! })) {
    const [, url, more] = /^homing router --worker '(\S+)'(.*)$/.exec(line) ?? []
    if (url !== undefined) return { child, url, argv: more!.split(' ').slice(1) }
  }
  throw new Error(`the example ended with ${child.exitCode}`)
}

async function serves(t: Test, url: string, argv: readonly string[] = []): Promise<RouterClient> {
  const router = await startTestRouter([url], argv)
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  await until('it is up', async () =>
    (await client.workers()).every(({ state }) => state === 'up') ? true : undefined,
  )
  const ids = await chatIdsOf(MESSAGES)
  const body = { model: MODEL, messages: MESSAGES, ignore_eos: true, return_token_ids: true }
  const whole = await client.send('/v1/chat/completions', { body })
  t.equal(whole.status, 200, whole.text)
  t.strictSame(whole.json.choices[0].token_ids, ids.toReversed())
  t.equal(whole.json.choices[0].finish_reason, 'stop')
  t.equal(whole.json.usage.completion_tokens, ids.length)
  const stream = await client.send('/v1/chat/completions', { body: { ...body, stream: true, max_tokens: 4 } })
  const chunks = chunksOf(stream.text)
  t.strictSame(
    chunks.flatMap(({ choices: [choice] }) => choice?.token_ids ?? []),
    ids.toReversed().slice(0, 4),
  )
  t.equal(chunks.at(-1).choices[0].finish_reason, 'length')
  const words = await client.send('/v1/completions', {
    body: { model: MODEL, prompt: 'Hello', ignore_eos: true },
  })
  t.equal(words.json.choices[0].text.length, 'Hello'.length)
  return client
}

t.test('the example in TypeScript', async t => {
  const { NODE_OPTIONS: _, ...env } = process.env
  const { child, url } = await startExample(t, process.execPath, [NODE_EXAMPLE], env)
  await serves(t, url)
  child.stdin!.end()
  t.strictSame(await once(child, 'exit'), [0, null])
})

t.test('the example in Python', { skip: skipOf(plainPython()) }, async t => {
  const python = found(plainPython())
  const { child, url } = await startExample(t, python.path, [PYTHON_EXAMPLE], pythonEnvironment())
  await serves(t, url)
  child.stdin!.end()
  t.strictSame(await once(child, 'exit'), [0, null])
})

t.test('the example in Python, over TCP', { skip: skipOf(packagedPython()) }, async t => {
  const python = found(packagedPython())
  const args = [PYTHON_EXAMPLE, '--request-plane', 'tcp']
  const { child, url, argv } = await startExample(t, python.path, args, pythonEnvironment())
  t.strictSame(argv, ['--request-plane', 'tcp'])
  const client = await serves(t, url, argv)
  t.match((await client.send('/workers')).json.workers[0].called_at, /^tcp:/)
  child.stdin!.end()
  t.strictSame(await once(child, 'exit'), [0, null])
})
