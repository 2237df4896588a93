/**
 * Checks: types by which the compiler checks the declarations of users: messages can travel, a behavior has
 * no extra arm, a thread name exists. They have no values at run time; the runtime repeats each check as far
 * as it can.
 */

import type { Message, ReplyMark, replyMark } from '../values/message.ts'
import type { Refused } from './refused.ts'
import type { ActorRef, Asks, Behavior, signal } from './types.ts'

// ── Messages ───────────────────────────────────────────────────────────────────────────────────

type Plain = string | number | boolean | bigint | null | undefined | Date | RegExp | Error
type Bytes = ArrayBuffer | SharedArrayBuffer | ArrayBufferView

/**
 * T, with `Refused` in the place of what cannot travel between threads: functions that are no Reply, symbols,
 * instances of classes with methods, refs and replies in a Map or Set. A class without methods looks like
 * plain data.
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

/**
 * B, when its arms are those of the messages, and every arm of an ask takes the message that it is to answer,
 * or only throws.
 */
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
