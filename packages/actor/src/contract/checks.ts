/**
 * Checks that the compiler makes of what users declare: that messages can travel, that a behavior has no arm too many, that
 * the name of a thread is one. They have no value at run time, where the same is checked as far as it can be.
 */

import type { Message, ReplyMark, replyMark } from '../values/message.ts'
import type { ActorRef, Asks, Behavior, signal, ThreadPoolOptions } from './types.ts'

/** Stands where a type may not be; no value has it. */
export interface Refused<Why extends string> {
  readonly [refused]: Why
}
declare const refused: unique symbol

// ── Messages ───────────────────────────────────────────────────────────────────────────────────

type Plain = string | number | boolean | bigint | null | undefined | Date | RegExp | Error
type Bytes = ArrayBuffer | SharedArrayBuffer | ArrayBufferView

/**
 * T, with `Refused` in the place of what cannot travel between threads: functions that are no Reply, symbols, instances of
 * classes with methods, refs and replies in a Map or Set. A class without methods looks like plain data.
 */
export type Travelling<T> = unknown extends T
  ? T
  : T extends Plain | Bytes | ActorRef<never>
    ? T
    : T extends symbol
      ? Refused<'a symbol'>
      : T extends (...args: never[]) => unknown
        ? typeof replyMark extends keyof T
          ? T
          : Refused<'a function'>
        : T extends ReadonlyMap<infer K, infer V>
          ? ReadonlyMap<TravellingItem<K>, TravellingItem<V>>
          : T extends ReadonlySet<infer V>
            ? ReadonlySet<TravellingItem<V>>
            : { readonly [K in keyof T]: Travelling<T[K]> }

type TravellingItem<T> = unknown extends T
  ? T
  : T extends ActorRef<never> | ReplyMark
    ? T extends Plain | Bytes
      ? T
      : T extends ActorRef<never> | ((...args: never[]) => unknown)
        ? Refused<'a ref or reply in a Map or Set'>
        : Travelling<T>
    : Travelling<T>

/** The fields of messages that cannot travel, as `type.field`. */
export type Stuck<M extends Message> = M extends unknown
  ? { [K in keyof M]-?: [M[K]] extends [Travelling<M[K]>] ? never : `${M['type']}.${K & string}` }[keyof M]
  : never

/** `string`, when all messages can travel. */
export type NameOfExport<M extends Message> = [Stuck<M>] extends [never]
  ? string
  : Refused<`${Stuck<M>} cannot travel between threads`>

// ── Behaviors ──────────────────────────────────────────────────────────────────────────────────

/** B, when its arms are those of the messages, and every arm of an ask takes the message that it is to answer, or only throws. */
export type Arms<M extends Message, B> = {
  readonly [K in keyof B]: K extends keyof Behavior<M>
    ? K extends typeof signal
      ? B[K]
      : K extends Asks<M>['type']
        ? B[K] extends () => infer R
          ? [R] extends [never]
            ? B[K]
            : Refused<'this arm never replies: it takes no message'>
          : B[K]
        : B[K]
    : Refused<'there is no such message type'>
}

// ── Threads ────────────────────────────────────────────────────────────────────────────────────

export type Pools = Readonly<Record<string, ThreadPoolOptions>>

/** The names of the threads of a system with these pools: every one where their number is known to the compiler. */
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
