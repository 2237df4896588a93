/**
 * Arms: a behavior that answers only to its own arms. A message type is any string, even `toString` or
 * `__proto__`: inherited members of objects must not be found under it, and this must not make finding an arm
 * slower.
 */

import type { Signal, signal } from '../contract/types.ts'
import type { Message } from '../values/message.ts'

/** An arm that takes every message without an arm of its own; for probes. */
export const anyMessage: unique symbol = Symbol('homing.anyMessage')

export type Arms = Record<string, ((message: Message) => void | Promise<void>) | undefined> & {
  readonly [signal]?: (signal: Signal) => void | Promise<void>
  readonly [anyMessage]?: (message: Message) => void
}

/**
 * The behavior itself, cut off from `Object.prototype`; one of a class, or frozen, as a table of its arms.
 */
export function armsOf(behavior: object): Arms {
  const parent: unknown = Object.getPrototypeOf(behavior)
  if (parent === null) return behavior as Arms
  if (parent === Object.prototype && Object.isExtensible(behavior)) {
    return Object.setPrototypeOf(behavior, null) as Arms
  }
  const arms = Object.create(null) as Record<PropertyKey, unknown>
  for (const key of keysOf(behavior)) {
    const arm: unknown = Reflect.get(behavior, key)
    if (typeof arm === 'function' && key !== 'constructor') arms[key] = arm.bind(behavior)
  }
  return arms as Arms
}

/** Arms of the object and its classes. */
function keysOf(behavior: object): Set<string | symbol> {
  const keys = new Set<string | symbol>()
  for (
    let object: object | null = behavior;
    object !== null && object !== Object.prototype;
    object = Object.getPrototypeOf(object) as object | null
  ) {
    for (const key of Reflect.ownKeys(object)) keys.add(key)
  }
  return keys
}
