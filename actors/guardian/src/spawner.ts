/** Spawner: how the guardian spawns its children: watched, and restarted within a budget. */

import type {
  ActorContext,
  ActorDefinition,
  ActorRef,
  Message,
  SpawnOptions,
  Supervision,
} from '@homing/actor'
import type { GuardianMessage } from './messages.ts'

export const SUPERVISION = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: '20ms', max: '5s', jitter: 0.2 },
} as const satisfies Supervision

type ChildOptions = Partial<Pick<SpawnOptions<never>, 'thread' | 'supervision' | 'mailbox'>>

export type Spawn = <M extends Message, A>(
  definition: ActorDefinition<M, A>,
  name: string,
  args: A,
  options?: ChildOptions,
) => ActorRef<M>

/**
 * Spawns children that are watched; without options: on `main`, under SUPERVISION, with a mailbox of
 * `capacity`.
 */
export function spawner(context: ActorContext<GuardianMessage>, capacity: number) {
  const spawn = <M extends Message, A>(
    definition: ActorDefinition<M, A>,
    name: string,
    args: A,
    options: ChildOptions = {},
  ): ActorRef<M> => {
    const defaults = { supervision: SUPERVISION, mailbox: { capacity } }
    const ref = context.spawn(definition, { name, args, ...defaults, ...options })
    context.watch(ref)
    return ref
  }
  /** Undefined arguments: the settings leave this actor out. */
  const spawnIfOn = <M extends Message, A>(
    definition: ActorDefinition<M, A>,
    name: string,
    args: A | undefined,
    options: ChildOptions,
  ): ActorRef<M> | undefined => (args === undefined ? undefined : spawn(definition, name, args, options))
  return { spawn, spawnIfOn }
}
