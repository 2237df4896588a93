/** Processes of the bench: start, wait for their first line, ask for their CPU time, end. */

import { spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

export interface Process {
  readonly pid: number
  /** The URLs of its first line. */
  readonly urls: readonly string[]
  /** Resolves when it has gone. */
  stop(): Promise<void>
}

const ERROR_CHARACTERS_MAX = 4000
const START_MS_MAX = 60_000
const STOP_MS_MAX = 5000

/**
 * Starts `node file words…` and resolves with its first line, "… ready on URL … (pid N)". Rejects when it
 * ends before.
 */
export async function startProcess(file: string, words: readonly string[]): Promise<Process> {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('HOMING_')))
  // With its standard input a program of ours ends, however this process ended.
  const child = spawn(process.execPath, [file, ...words], { env, stdio: ['pipe', 'pipe', 'pipe'] })
  const ended = new Promise<void>(resolve => child.once('close', () => resolve()))
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', text => {
    errors = (errors + text).slice(-ERROR_CHARACTERS_MAX)
  })
  const late = setTimeout(() => child.kill('SIGKILL'), START_MS_MAX)
  const first = await new Promise<string>((resolve, reject) => {
    createInterface(child.stdout).once('line', resolve)
    ended.then(() => {
      const end = child.exitCode ?? child.signalCode
      reject(new Error(`cannot start ${file}: it ended with ${end} before it was ready: ${errors}`))
    })
  }).finally(() => clearTimeout(late))
  return {
    pid: child.pid!,
    urls: first.match(/http:\/\/[^\s,]+/g) ?? [],
    async stop() {
      child.kill('SIGTERM')
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX)
      await ended
      clearTimeout(timer)
    },
  }
}

/** False where the system does not tell the CPU time of another process this way: anywhere but on Linux. */
export const knowsCpuTime = existsSync(`/proc/${process.pid}/task/${process.pid}/schedstat`)

/**
 * CPU time of all threads of a process so far, user and system, in milliseconds. Read per thread, because
 * /proc/PID/stat counts in hundredths of a second; a thread that has ended is not in it, and the programs
 * here end none while they serve.
 */
export function cpuMsOf(pid: number): number {
  const tasks = `/proc/${pid}/task`
  return readdirSync(tasks).reduce(
    (sum, task) => sum + Number(readFileSync(`${tasks}/${task}/schedstat`, 'utf8').split(' ')[0]) / 1e6,
    0,
  )
}
