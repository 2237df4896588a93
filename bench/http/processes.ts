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
  return cpuMsOfThreads(pid, () => true)
}

/**
 * The part of V8's own threads, which compile and collect: more or less of it falls on the same requests from
 * one process to the next.
 */
export function helperMsOf(pid: number): number {
  return cpuMsOfThreads(pid, name => name === 'V8Worker')
}

function cpuMsOfThreads(pid: number, isCounted: (name: string) => boolean): number {
  const tasks = `/proc/${pid}/task`
  let sum = 0
  for (const task of readdirSync(tasks)) {
    if (!isCounted(readFileSync(`${tasks}/${task}/comm`, 'utf8').trim())) continue
    sum += Number(readFileSync(`${tasks}/${task}/schedstat`, 'utf8').split(' ')[0]) / 1e6
  }
  return sum
}

/** CPU time and resident memory of a process and its descendants. */
export interface TreeUsage {
  /** CPU time of each thread that lives, in ms. */
  readonly threadsMs: ReadonlyMap<number, number>
  /** Of each process, with threads that have ended; in steps of 10 ms. */
  readonly processesMs: number
  readonly residentMb: number
}

/** Of the process `pid` and all below it. */
export function treeUsage(pid: number): TreeUsage {
  const threadsMs = new Map<number, number>()
  let processesMs = 0
  let residentKb = 0
  for (const each of treeOf(pid)) {
    for (const task of tasksOf(each)) {
      const [ns] = (tryRead(`/proc/${each}/task/${task}/schedstat`) ?? '0').split(' ')
      threadsMs.set(Number(task), Number(ns) / 1e6)
    }
    // Behind the name, which may have any characters.
    const fields = (tryRead(`/proc/${each}/stat`) ?? '').split(') ').at(-1)!.split(' ')
    processesMs += (Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) * TICK_MS
    residentKb += Number(/^VmRSS:\s+(\d+)/m.exec(tryRead(`/proc/${each}/status`) ?? '')?.[1] ?? 0)
  }
  return { threadsMs, processesMs, residentMb: residentKb / 1024 }
}

const TICK_MS = 10

/** CPU time between two looks, in ms: to the nanosecond, or to 10 ms where a thread ended in between. */
export function cpuMsBetween(before: TreeUsage, after: TreeUsage): number {
  let sum = 0
  for (const [task, ms] of after.threadsMs) sum += ms - (before.threadsMs.get(task) ?? 0)
  const hasLostOne = [...before.threadsMs.keys()].some(task => !after.threadsMs.has(task))
  return hasLostOne ? Math.max(sum, after.processesMs - before.processesMs) : sum
}

/** CPU time that all processes of the machine took so far, in ms. */
export function machineBusyMs(): number {
  const [user, nice, system, , , irq, soft, steal] = readFileSync('/proc/stat', 'utf8')
    .split('\n', 1)[0]!
    .split(/\s+/)
    .slice(1)
    .map(Number)
  return (user! + nice! + system! + irq! + soft! + steal!) * TICK_MS
}

function treeOf(pid: number): readonly number[] {
  const children = tasksOf(pid).flatMap(task =>
    (tryRead(`/proc/${pid}/task/${task}/children`) ?? '').split(' ').filter(word => word !== ''),
  )
  return [pid, ...children.flatMap(child => treeOf(Number(child)))]
}

/** None: the process has just gone. */
function tasksOf(pid: number): readonly string[] {
  try {
    return readdirSync(`/proc/${pid}/task`)
  } catch {
    return []
  }
}

/** Undefined: the process or thread has just gone. */
function tryRead(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}
