/** Thread names: the check that the compiler makes of a placement, against the pools of the system. */

import type { Refused } from './refused.ts'

/** A pool of worker threads. */
export interface ThreadPoolOptions {
  /** Threads in the pool: named `<pool>-0` … `<pool>-<count − 1>`. */
  readonly count: number
  /** URLs of modules that each thread loads as soon as it is up, before an actor of them is spawned there. */
  readonly preload?: readonly string[]
}

export type Pools = Readonly<Record<string, ThreadPoolOptions>>

/**
 * The names of the threads of a system with these pools: every one where their number is known to the
 * compiler.
 */
export type ThreadName<P extends Pools> =
  | 'main'
  | (P extends unknown
      ? { [K in keyof P & string]: `${K}-${IndexBelow<P[K]['count']>}` }[keyof P & string]
      : never)

type IndexBelow<Count extends number, Counted extends 1[] = []> = number extends Count
  ? number
  : Counted['length'] extends Count
    ? never
    : Counted['length'] extends 128
      ? number
      : Counted['length'] | IndexBelow<Count, [...Counted, 1]>

/** T, when it can be a placement there; a string of which more is known only at run time can. */
export type Placement<T, P extends Pools> = T extends string
  ? T extends 'here' | 'dedicated' | ThreadName<P>
    ? T
    : [Extract<ThreadName<P>, T>] extends [never]
      ? Refused<`the system has no thread '${T}'`>
      : T
  : T extends { readonly pool: infer Pool }
    ? string extends Pool
      ? T
      : Pool extends PoolName<P>
        ? T
        : Refused<`the system has no pool '${Pool & string}'`>
    : T

type PoolName<P extends Pools> = P extends unknown ? keyof P & string : never

/** What a spawn is to be given for args of type A: nothing, when they are void. */
export type ArgsOf<A> = undefined extends A ? { readonly args?: A } : { readonly args: A }
