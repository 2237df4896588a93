/**
 * A page of docs/, typed as printed: every command runs, in order, on ports of the test, and gives the answer
 * that is printed below it. `homing NAME …` and `nats-server …` start processes that run until the test ends;
 * everything else is a command of the shell, and so is `homing load …`, which ends.
 *
 *   json    every field of the page is in the answer; the answer may have more
 *   text    every line of the page is in the answer, in this order; `…` stands for any characters
 */

import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { promisify } from 'node:util'
import { freePort } from '@homing/transport/testing'
import type { Test } from 'tap'
import { MAIN, startProcess, until } from './fleet.ts'

const DOCS = join(import.meta.dirname, '..', '..', 'docs')

interface Step {
  readonly command: string
  /** What the page prints below the command. */
  readonly answer: string | undefined
  readonly form: string | undefined
}

function stepsOf(page: string): readonly Step[] {
  const blocks = [...page.matchAll(/```sh\n(.*?)```\n(?:\n?```(json|text)\n(.*?)```\n)?/gs)]
  return blocks.map(([, command, form, answer]) => ({ command: command!.trim(), form, answer }))
}

/** JSON whose integers stay text, so that none is rounded. */
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

/** Whether the lines of `expected` are in `actual`, one after the other. */
function follows(actual: string, expected: string): boolean {
  const lines = actual.split('\n')
  let at = 0
  for (const wanted of expected.trim().split('\n')) {
    const pattern = new RegExp(`^${wanted.trim().split('…').map(escaped).join('.*')}$`)
    while (at < lines.length && !pattern.test(lines[at]!.trim())) at++
    if (at++ >= lines.length) return false
  }
  return true
}

export const hasCurl = await promisify(execFile)('curl', ['--version']).then(
  () => true,
  () => false,
)

export interface TypedPage {
  /** Of docs/. */
  readonly page: string
  /** Ports of the page; each is replaced by a free one. */
  readonly ports: RegExp
  readonly stepsMin: number
  /**
   * A command that only asks is repeated until its answer is as printed: earlier commands take effect a
   * moment later.
   */
  readonly isQuestion: (command: string) => boolean
  /** The folder that commands of the shell run in. */
  readonly folder?: string
}

export async function runTypedPage(
  t: Test,
  { page: name, ports: pattern, stepsMin, isQuestion, folder }: TypedPage,
): Promise<void> {
  const ports = new Map<string, number>()
  const page = readFileSync(join(DOCS, name), 'utf8')
  for (const [port] of page.matchAll(pattern)) ports.set(port, ports.get(port) ?? (await freePort()))
  const steps = stepsOf(page.replace(pattern, port => String(ports.get(port))))
  assert.ok(steps.length >= stepsMin, `${steps.length} steps`)
  for (const { command, answer, form } of steps) {
    const [, started, options] = /^homing (?!load )(\S+) (.*)$/s.exec(command) ?? []
    if (started !== undefined) {
      const running = await startProcess(
        started,
        options!
          .replaceAll('\\\n', ' ')
          .split(/\s+/)
          .map(word => word.replaceAll("'", '')),
      )
      t.teardown(() => running.kill('SIGKILL'))
      t.pass(command)
      continue
    }
    if (command.startsWith('nats-server ')) {
      const server = spawn('nats-server', command.split(/\s+/).slice(1), { stdio: 'ignore' })
      t.teardown(() => server.kill('SIGKILL'))
      t.pass(command)
      continue
    }
    let printed = ''
    const isAsPrinted = async (): Promise<true | undefined> => {
      const typed = command.replace(/^homing /, `'${process.execPath}' '${MAIN}' `)
      printed = (await promisify(execFile)('bash', ['-c', typed], { cwd: folder })).stdout
      if (answer === undefined) return true
      return (form === 'json' ? holds(exactJson(printed), exactJson(answer)) : follows(printed, answer))
        ? true
        : undefined
    }
    if (isQuestion(command)) await until(`${command} answers ${answer}`, isAsPrinted, { seen: () => printed })
    else t.equal(await isAsPrinted(), true, `${command} answers ${printed}`)
    t.pass(command)
  }
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')
}
