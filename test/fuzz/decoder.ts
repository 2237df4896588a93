/** What the fuzzer knows of one reader of bytes or texts that others have written. */

import type { CodedError } from '@homing/base'

// biome-ignore lint/suspicious/noExplicitAny: the arguments of an error's constructor do not matter here
export type Refusal = abstract new (...of: any[]) => Error | CodedError

export interface Decoder {
  /** The file that has it, from the root of the repository. */
  readonly file: string
  /** The functions that it feeds; the first is its name in a failure. */
  readonly functions: readonly string[]
  /** What it is mutated as: a text of JSON also by its values. */
  readonly form: 'bytes' | 'text' | 'json'
  /** Inputs that are right. */
  readonly seeds: readonly (Uint8Array | string)[]
  readonly read: (input: Uint8Array) => unknown
  /** All that it may throw. */
  readonly refusals?: readonly Refusal[]
  /** Its result has parts of its own size, so it is not weighed; memory is bounded over all. */
  readonly isUnweighed?: boolean
  /** Most milliseconds for one input, where there is a reason for more than CASE_MS_MAX. */
  readonly caseMsMax?: number
}

export function textOf(input: Uint8Array): string {
  return Buffer.from(input.buffer, input.byteOffset, input.byteLength).toString()
}

type Rest = Pick<Decoder, 'seeds' | 'refusals' | 'isUnweighed' | 'caseMsMax'>

export function ofBytes(
  file: string,
  functions: string,
  read: (input: Uint8Array) => unknown,
  rest: Rest,
): Decoder {
  return { file, functions: functions.split(' '), form: 'bytes', read, ...rest }
}

export function ofText(
  file: string,
  functions: string,
  read: (input: string) => unknown,
  rest: Rest,
): Decoder {
  return { file, functions: functions.split(' '), form: 'text', read: input => read(textOf(input)), ...rest }
}

export function ofJson(
  file: string,
  functions: string,
  read: (input: Uint8Array) => unknown,
  rest: Rest,
): Decoder {
  return { file, functions: functions.split(' '), form: 'json', read, ...rest }
}
