/**
 * Member: one member of a key router over all its lives: its present ref, the thread that it lives on, the watch that
 * sees its end, and the hold while its thread is away. Which keys it owns is the router's to say.
 */

import type { Spawner } from './context.ts'
import type { Deadline } from './deadlines.ts'
import type { KeyRouterOptions } from './key-router-types.ts'
import type { Peer, Watcher } from './peer.ts'
import { type AnyRef, asAnyRef, RemoteRef } from './refs.ts'
import { seedOf } from './rendezvous.ts'
import { SETTLE } from './settles.ts'
import { isThreadLoss } from './terminated.ts'
import { describe } from './thrown.ts'
import type { ActorDefinition, ActorRef, Message, Placement, Supervision } from './types.ts'

const SUPERVISION_DEFAULT: Supervision = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: '20ms', max: '2s', jitter: 0.2 },
}

/** What all members of a router have in common. */
export interface MemberKind {
  readonly spawner: Spawner
  readonly definition: ActorDefinition<Message, unknown>
  readonly options: KeyRouterOptions<Message, unknown>
}

export class Member {
  readonly index: number
  readonly name: string
  readonly seed: number
  ref: AnyRef
  /** The thread that it lives on, when that is another one. */
  peer: Peer | undefined
  state: 'owner' | 'returning' | 'ready' | 'gone' = 'owner'
  /** The hold has ended, but the keys wait for somebody who could have them, or for the end of the thread. */
  isOverdue = false
  /** It has ended for good, with a thread that has yet to end. */
  isLost = false
  readonly #kind: MemberKind
  readonly #placement: Placement
  /** Ends the hold; undefined while it is not down. */
  #hold: Deadline | undefined = undefined
  #watcher: Watcher | undefined = undefined

  /** Spawns it. */
  constructor(kind: MemberKind, index: number, placement: Placement) {
    this.#kind = kind
    this.#placement = placement
    this.index = index
    this.name = `${kind.options.name}-${index}`
    this.seed = seedOf(index)
    this.ref = this.#spawn()
    this.peer = peerOf(this.ref)
  }

  /** Its thread has ended, and another life of it may come. */
  get isDown(): boolean {
    return this.peer?.state === 'down'
  }

  /** Its thread hung and is being ended: until then it may take what it was told. */
  get isEnding(): boolean {
    return this.isDown && this.peer?.end === 'ending'
  }

  #spawn(): AnyRef {
    const { spawner, definition, options } = this.#kind
    const { args, supervision = SUPERVISION_DEFAULT, mailbox } = options
    const ref = spawner.spawn(definition, {
      name: this.name,
      thread: this.#placement,
      args: typeof args === 'function' ? (args as (index: number) => unknown)(this.index) : args,
      supervision,
      ...(mailbox === undefined ? {} : { mailbox }),
    })
    return asAnyRef(ref as ActorRef<never>)
  }

  /** Spawns it again, to return. False when it cannot be: then it is gone. */
  spawnAgain(): boolean {
    this.state = 'returning'
    try {
      this.ref = this.#spawn()
    } catch (error) {
      this.state = 'gone'
      const { log } = this.#kind.spawner.runtime
      log.warn({ actor: this.name, error: describe(error) }, 'member not spawned again')
      return false
    }
    this.peer = peerOf(this.ref)
    return true
  }

  /** Calls `onEnded` when it has ended for good: the loss of a life that another follows is no such end. */
  watch(onEnded: () => void): void {
    const { spawner, options } = this.#kind
    const watcher: Watcher = {
      onTerminated: (_key, _name, reason) => {
        if (this.#watcher !== watcher) return
        const { directive } = options.supervision ?? SUPERVISION_DEFAULT
        if (isThreadLoss(reason) && directive === 'restart') this.watch(onEnded)
        else onEnded()
      },
    }
    this.#watcher = watcher
    spawner.runtime.watches.add(watcher, this.ref)
  }

  #unwatch(): void {
    const watcher = this.#watcher
    this.#watcher = undefined
    if (watcher !== undefined) this.#kind.spawner.runtime.watches.remove(watcher, this.ref)
  }

  /** Calls `onOverdue` after `holdMs`, unless the hold ends before. */
  hold(holdMs: number, onOverdue: () => void): void {
    if (this.#hold !== undefined) return
    const hold: Deadline = {
      dueMs: 0,
      position: -1,
      expire: () => {
        this.#hold = undefined
        onOverdue()
      },
    }
    this.#hold = hold
    this.#kind.spawner.runtime.deadlines.add(hold, holdMs)
  }

  endHold(): void {
    this.isOverdue = false
    if (this.#hold === undefined) return
    this.#kind.spawner.runtime.deadlines.remove(this.#hold)
    this.#hold = undefined
  }

  /** Resolves when it has handled all that it was told before. */
  settle(timeoutMs: number): Promise<unknown> {
    return this.ref.ask({ type: SETTLE } as never, { timeout: timeoutMs })
  }

  /** Ends it; what it was told and its thread had not taken is returned. */
  fence(): Message[] {
    const { ref, peer } = this
    const { runtime, stop } = this.#kind.spawner
    const tells = peer === undefined ? [] : runtime.outbound.takeBackTells(ref as RemoteRef)
    this.endHold()
    this.#unwatch()
    stop(ref)
    if (peer?.end !== 'stuck') return tells
    // A thread that could not be ended may yet go on and take them.
    for (const { type } of tells) runtime.deadLetter(this.name, type, 'dead')
    return []
  }

  /** It has ended for good. */
  forget(): void {
    this.endHold()
    this.#watcher = undefined
    this.state = 'gone'
  }

  stop(): void {
    this.endHold()
    this.state = 'gone'
    this.#unwatch()
    this.#kind.spawner.stop(this.ref)
  }
}

function peerOf(ref: AnyRef): Peer | undefined {
  return ref instanceof RemoteRef ? ref.peer : undefined
}
