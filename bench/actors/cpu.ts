/**
 * CPU time of a piece of work, of the process and of its two threads. On a shared machine it is steadier than
 * the clock: time in which other programs ran does not count.
 */

import process from 'node:process'
import { nextTurn } from './loads.ts'

/** CPU time so far, in microseconds. */
export interface CpuTimes {
  /** All threads, with those of the garbage collector and the compiler. */
  readonly process: number
  readonly main: number
  /** The other thread that takes part; 0 when there is none. */
  readonly other: number
}

/** CPU time of a message, in nanoseconds. */
export type CpuCosts = {
  readonly cpuNs: number
  /** Of the thread that had more to do: with two cores of their own, messages cannot go faster. */
  readonly busierNs: number
}

/** CPU time that a thread had so far, in microseconds. */
export function threadCpuUs(): number {
  const { user, system } = process.threadCpuUsage()
  return user + system
}

/** `other` asks the other thread what it had so far. */
export async function cpuTimes(other: () => Promise<number> | number = () => 0): Promise<CpuTimes> {
  const times = { other: await other(), main: threadCpuUs() }
  const { user, system } = process.cpuUsage()
  return { ...times, process: user + system }
}

/** What each of `count` messages cost; without `idleUs`, which main spent on waiting. */
export function costsOf(count: number, before: CpuTimes, after: CpuTimes, idleUs = 0): CpuCosts {
  const main = after.main - before.main - idleUs
  return {
    cpuNs: ((after.process - before.process - idleUs) * 1000) / count,
    busierNs: (Math.max(main, after.other - before.other) * 1000) / count,
  }
}

/** Main waits for room in rounds of the event loop: that takes CPU time which no message costs. */
export class Waiter {
  /** CPU time that was spent so, in microseconds. */
  us = 0

  async turn(): Promise<void> {
    const before = threadCpuUs()
    await nextTurn()
    this.us += threadCpuUs() - before
  }
}
