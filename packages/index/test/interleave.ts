/**
 * An interleaving that is the same on every run: something between any two accesses to shared words. The
 * loops of every index and reader that are made after this file was imported call back before each access,
 * with atomic words; what TypeScript does goes through Atomics, which are patched meanwhile.
 */

import { substituteLoops } from '../src/loops.ts'
import { HOOKED_WASM_BASE64 } from './hooked-wasm.ts'

let hook: (() => void) | undefined
substituteLoops(Buffer.from(HOOKED_WASM_BASE64, 'base64'), () => hook?.())

/**
 * Runs `between` before each load of a reader, or each store of a writer, that `work` does; never within
 * itself.
 */
export function interleave(name: 'load' | 'store', between: () => void, work: () => void): void {
  const original = Atomics[name] as (words: Int32Array, at: number, value?: number) => number
  const step = () => {
    hook = undefined
    Object.assign(Atomics, { [name]: original })
    between()
    hook = step
    Object.assign(Atomics, { [name]: patched })
  }
  const patched = (words: Int32Array, at: number, value?: number): number => {
    step()
    return name === 'load' ? original(words, at) : original(words, at, value)
  }
  hook = step
  Object.assign(Atomics, { [name]: patched })
  try {
    work()
  } finally {
    hook = undefined
    Object.assign(Atomics, { [name]: original })
  }
}
