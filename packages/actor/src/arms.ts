/**
 * Arms: a behavior that answers to nothing but its own arms. A message type is any string, also `toString` or
 * `__proto__`: what every object inherits must not be found under it, and finding an arm should cost no more for that.
 */

import type { Arms } from './turn-taker.ts'

/** The behavior itself, cut off from `Object.prototype`; one of a class, or frozen, as a table of its arms. */
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

/** Of the object and its classes. */
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
