/**
 * Servers under test and the helpers beside them, as processes: pinned to a core where the system can, asked
 * until they answer, told by lines.
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { createInterface } from 'node:readline'
import type { Command } from './rivals.ts'

/** Core 0 is the server's; load and engines have core 1. Undefined: there is no way to pin, or one core. */
export const PINNED =
  availableParallelism() > 1 && spawnSync('taskset', ['-c', '0', 'true']).status === 0
    ? { server: 0, rest: 1 }
    : undefined

export interface Stoppable {
  stop(): Promise<void>
}

export interface Server extends Stoppable {
  readonly pid: number
  /** From the start of its process to the first answer with status 200. */
  readonly readyMs: number
}

const READY_MS_MAX = 60_000
const LOOK_MS = 10
const STOP_MS_MAX = 3000
const ERROR_CHARACTERS_MAX = 4000

/** Resolves once `command` answers `body` at `url`. Rejects with its last words when it ends before. */
export async function startServer(command: Command, url: string, body: Buffer): Promise<Server> {
  const startMs = performance.now()
  const { child, ended, lastWords } = start(command, PINNED?.server)
  child.stdout.resume()
  for (;;) {
    if (await answers(url, body)) break
    const isLate = performance.now() - startMs > READY_MS_MAX
    if (isLate) child.kill('SIGKILL')
    if (isLate || child.exitCode !== null || child.signalCode !== null) {
      throw new Error(`cannot measure ${command.file}: it does not answer at ${url}: ${lastWords()}`)
    }
    await new Promise(done => setTimeout(done, LOOK_MS))
  }
  return {
    pid: child.pid!,
    readyMs: performance.now() - startMs,
    stop: () => stop(child, ended),
  }
}

/** A program of the bench that is told and answers by lines. */
export interface Helper extends Stoppable {
  readonly pid: number
  /** Its first line. */
  readonly first: string
  /** Resolves with its next line. Rejects with its last words when it ends before. */
  ask(line: string): Promise<string>
}

/** A program beside load and engines, which a server needs. */
export function startCompanion(command: Command): Stoppable & { readonly pid: number } {
  const { child, ended } = start(command, PINNED?.rest)
  child.stdout.resume()
  return { pid: child.pid!, stop: () => stop(child, ended) }
}

export async function startHelper(file: string, words: readonly string[]): Promise<Helper> {
  const { child, ended, lastWords } = start({ file: process.execPath, words: [file, ...words] }, PINNED?.rest)
  const lines = createInterface(child.stdout!)[Symbol.asyncIterator]()
  const next = async (): Promise<string> => {
    const { done, value } = await lines.next()
    if (!done) return value
    await ended
    throw new Error(`${file} ended with ${child.exitCode ?? child.signalCode}: ${lastWords()}`)
  }
  const first = await next()
  return {
    pid: child.pid!,
    first,
    ask(line) {
      child.stdin!.write(`${line}\n`)
      return next()
    },
    stop: () => stop(child, ended),
  }
}

function start({ file, words, env = {} }: Command, core: number | undefined) {
  const inherited = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.startsWith('HOMING_')),
  )
  const [first, ...rest] =
    core === undefined ? [file, ...words] : ['taskset', '-c', String(core), file, ...words]
  const child = spawn(first!, rest, { env: { ...inherited, ...env }, stdio: ['pipe', 'pipe', 'pipe'] })
  // A program that has ended takes no lines; its end is told elsewhere.
  child.stdin.on('error', () => {})
  let errors = ''
  const keep = (text: string): void => {
    errors = (errors + text).slice(-ERROR_CHARACTERS_MAX)
  }
  child.stderr.setEncoding('utf8').on('data', keep)
  const ended = new Promise<void>(resolve => {
    child.once('error', error => keep(error.message))
    child.once('close', () => resolve())
  })
  return { child, ended, lastWords: () => errors }
}

async function stop(child: ChildProcess, ended: Promise<void>): Promise<void> {
  child.stdin!.end()
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX)
  await ended
  clearTimeout(timer)
}

async function answers(url: string, body: Buffer): Promise<boolean> {
  try {
    const reply = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: new Uint8Array(body),
      signal: AbortSignal.timeout(2000),
    })
    await reply.arrayBuffer()
    return reply.status === 200
  } catch {
    // It does not listen yet.
    return false
  }
}
