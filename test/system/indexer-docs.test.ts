/**
 * docs/indexer-service.md, typed as printed: every command runs, in order, on ports of this test, and gives the answer that is
 * printed below it. Fields that the page leaves out may be there.
 */

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { startProcess, until } from './fleet.ts'

const PAGE = join(import.meta.dirname, '..', '..', 'docs', 'indexer-service.md')
const PORTS = /\b(8001|5557|6557|5657|8090|8091)\b/g

interface Step {
  readonly command: string
  /** What the page prints below the command. */
  readonly answer: string | undefined
}

function stepsOf(page: string): readonly Step[] {
  const blocks = [...page.matchAll(/```sh\n(.*?)```\n(?:```json\n(.*?)```\n)?/gs)]
  return blocks.map(([, command, answer]) => ({ command: command!.trim(), answer }))
}

/** Free at this moment. */
async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise(resolve => server.close(resolve))
  return port
}

/** JSON whose integers are text, so that none is rounded. */
function exactJson(text: string): unknown {
  return JSON.parse(
    text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?/g, token =>
      token.startsWith('"') ? token : `"${token}"`,
    ),
  )
}

/** Every field of `expected` is in `actual`. */
function holds(actual: unknown, expected: unknown): boolean {
  if (typeof expected !== 'object' || expected === null) return actual === expected
  if (typeof actual !== 'object' || actual === null) return false
  if (Array.isArray(expected) && (!Array.isArray(actual) || actual.length !== expected.length)) return false
  return Object.entries(expected).every(([name, value]) =>
    holds((actual as Record<string, unknown>)[name], value),
  )
}

const hasCurl = await promisify(execFile)('curl', ['--version']).then(
  () => true,
  () => false,
)
const skip = hasCurl ? false : 'curl is not installed'

t.test('every command of docs/indexer-service.md does what the page says', { skip }, async t => {
  const ports = new Map<string, number>()
  const page = readFileSync(PAGE, 'utf8')
  for (const [port] of page.matchAll(PORTS)) ports.set(port, ports.get(port) ?? (await freePort()))
  const steps = stepsOf(page.replace(PORTS, port => String(ports.get(port))))
  assert.ok(steps.length >= 10)
  for (const { command, answer } of steps) {
    const [, name, options] = /^homing (\S+) (.*)$/s.exec(command) ?? []
    if (name !== undefined) {
      const process = await startProcess(
        name,
        options!.split(' ').map(word => word.replaceAll("'", '')),
      )
      t.teardown(() => process.kill('SIGKILL'))
      t.pass(command)
      continue
    }
    assert.match(command, /^curl -s http:/)
    let printed = ''
    const isAsPrinted = async (): Promise<true | undefined> => {
      printed = (await promisify(execFile)('bash', ['-c', command])).stdout
      return answer === undefined || holds(exactJson(printed), exactJson(answer)) ? true : undefined
    }
    // A registration takes effect, and events arrive, a moment later; only what may be repeated is.
    const isQuestion = /\/(query|query_by_hash|workers|dump)\b/.test(command)
    if (isQuestion) await until(`${command} answers ${answer}`, isAsPrinted, { seen: () => printed })
    else t.equal(await isAsPrinted(), true, `${command} answers ${printed}`)
    t.pass(command)
  }
})
