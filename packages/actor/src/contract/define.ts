/**
 * Definitions: how an actor or a capability is declared in a module. A definition reaches another
 * thread as the URL of its module and the name of its export; code itself never travels.
 */

import type { Message, MessageKey } from '../values/message.ts'
import type { Arms, NameOfExport } from './checks.ts'
import { checkedFields } from './settings.ts'
import type { ActorContext, ActorDefinition, Behavior, Capability } from './types.ts'

/** What an actor is made of: all that `defineActor` is given beside its address. */
export interface ActorSpecification<M extends Message, A, B = Behavior<M>> {
  /** Makes a behavior; run again on every restart. What it throws counts as a failure of the actor. */
  readonly setup: (context: ActorContext<M>, args: A) => B | Promise<B>
  /** Lets async arms interleave; default false: an async arm suspends the mailbox until it settles. */
  readonly reentrant?: boolean
  /** Message types that overtake all others in the mailbox; they keep their order among themselves. */
  readonly control?: readonly M['type'][]
  /**
   * For a mailbox with overflow `coalesce`: a message replaces a waiting one with the same key; undefined:
   * none. Here and not in the options, because code does not travel between threads. Pure, and never throws.
   */
  readonly coalesce?: (message: M) => MessageKey
}

/**
 * The form without checks, for messages that never leave their thread: `defineActor(url, name)<M, Args>({
 * setup })`.
 */
export function defineActor(
  moduleUrl: string,
  exportName: string,
): <M extends Message, A = void>(specification: ActorSpecification<M, A>) => ActorDefinition<M, A>
/**
 * Declares an actor: `export const session = defineActor<M, Args>(import.meta.url, 'session')({ setup })`.
 * `exportName` is the name under which the module at `moduleUrl` exports the result. The compiler refuses
 * messages that cannot travel between threads, arms for types that are none, and arms of asks that cannot
 * reply.
 */
export function defineActor<M extends Message, A = void>(
  moduleUrl: string,
  exportName: NameOfExport<M>,
): <B extends Behavior<M>>(specification: ActorSpecification<M, A, B & Arms<M, B>>) => ActorDefinition<M, A>
export function defineActor(
  moduleUrl: string,
  exportName: string,
): <M extends Message, A>(specification: ActorSpecification<M, A>) => ActorDefinition<M, A> {
  return specification => {
    if (typeof (specification as { readonly setup?: unknown } | undefined)?.setup !== 'function') {
      throw new RangeError(`cannot define actor '${exportName}': its setup is no function`)
    }
    checkedFields(`the definition of '${exportName}'`, specification, SPECIFICATION_FIELDS)
    return Object.freeze({
      moduleUrl,
      exportName,
      reentrant: specification.reentrant ?? false,
      ...(specification.control === undefined ? {} : { control: new Set<string>(specification.control) }),
      ...(specification.coalesce === undefined ? {} : { coalesce: specification.coalesce }),
      setup: specification.setup,
    })
  }
}

const SPECIFICATION_FIELDS = ['setup', 'reentrant', 'control', 'coalesce'] as const

const CAPABILITY_FIELDS = ['name', 'create', 'dispose'] as const

/** Declares a facility that each thread makes at most once, when an actor first uses it. */
export function defineCapability<T>(capability: Capability<T>): Capability<T> {
  checkedFields(`capability ${capability?.name}`, capability, CAPABILITY_FIELDS)
  return Object.freeze({ ...capability })
}

/** True when `value` looks like the definition that the module claims to export. */
export function isDefinition(value: unknown): value is ActorDefinition<Message, unknown> {
  return (
    typeof value === 'object' &&
    value !== null &&
    typeof (value as { setup?: unknown }).setup === 'function' &&
    typeof (value as { exportName?: unknown }).exportName === 'string'
  )
}
