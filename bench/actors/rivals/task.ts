/** The tasks that a pool runs. */

import { threadCpuUs } from '../cpu.ts'

export function add({ a }: { readonly a: number }): { readonly answer: number } {
  return { answer: a + 1 }
}

export function usage(): number {
  return threadCpuUs()
}
