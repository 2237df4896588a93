/**
 * KeyRouter: members of one definition on several threads, and for each key one of them that gets all its messages.
 *
 *   owner       has keys: rendezvous hashing over the owners, so that only the keys of a lost member move
 *   down        an owner whose thread has ended. Its keys wait for the next life (tells in the link, asks here) up to
 *               `holdFor`; then, or at once with `remap`, it is fenced and its keys are *remapped*
 *   returning   spawned again after it was fenced; it has no keys until the router gives them back
 *
 * Epochs      Who owns what changes only with `epoch`.
 * Fence       A fenced member never handles anything again that this router told it: what its thread had not taken
 *             is taken back from the link and goes to the new owners, in order; its next life has another ref.
 * Return      While keys go back to a member they wait here until their owners have handled all that they were told
 *             (settles.ts), arms in flight and stashed messages too; then the epoch changes, and what waited goes to the
 *             member, in order.
 *
 * So no two members ever handle one key at a time, except after a thread that could not be ended: it may still finish what
 * it has. A thread that hung keeps its keys until it has really ended.
 */

import { type Spawner, spawner } from './context.ts'
import type { Deadline } from './deadlines.ts'
import { toMs } from './durations.ts'
import { UnknownThreadError } from './errors.ts'
import { Member, type MemberKind } from './key-router-member.ts'
import type { KeyRouter, KeyRouterMember, KeyRouterOptions, RouterKey } from './key-router-types.ts'
import type { Peer, PeerListener } from './peer.ts'
import { hashOfKey, rendezvous } from './rendezvous.ts'
import type { Runtime } from './runtime.ts'
import type {
  ActorContext,
  ActorDefinition,
  ActorRef,
  ActorSystem,
  AskOptions,
  Message,
  Placement,
  TellStatus,
} from './types.ts'
import { WaitingAsks } from './waiting-asks.ts'

const HOLD_MS_DEFAULT = 200
/** A key that waits for its return waits at least this long before the return is put off. */
const RETURN_MS_MIN = 50
/** After a return that was put off, and between looks at a member that does not answer. */
const RETRY_MS = 500
/** How long a member that is back may take to answer for the first time, before it is asked again. */
const ANSWER_MS_MAX = 5000
const CAPACITY_DEFAULT = 1024

/** Keys on their way back to a member. */
interface Return {
  readonly member: Member
  readonly tells: Message[]
}

/**
 * Spawns the members as children of `parent` (a system, on main; or the context of an actor, on any thread) and routes
 * messages to them by key. The router belongs to the thread that made it; that of a context ends with the instance of
 * its actor. Throws RangeError for options out of their
 * range, UnknownThreadError for a pool that the system does not have.
 */
export function createKeyRouter<M extends Message, A>(
  parent: ActorSystem | ActorContext<never>,
  definition: ActorDefinition<M, A>,
  options: KeyRouterOptions<M, A>,
): KeyRouter<M> {
  const own = (parent as { readonly [spawner]?: Spawner })[spawner]
  if (own === undefined) throw new TypeError('cannot make a router here: give it a system or a context')
  return new MemberRouter(own, definition as unknown as ActorDefinition<Message, unknown>, options as never)
}

class MemberRouter implements KeyRouter<Message> {
  readonly #runtime: Runtime
  readonly #ends: Spawner['ends']
  readonly #end = (): void => this.stop()
  readonly #options: KeyRouterOptions<Message, unknown>
  readonly #holdMs: number
  readonly #tellsMax: number
  readonly #members: Member[]
  #owners: Member[]
  readonly #listeners = new Map<Peer, PeerListener>()
  readonly #asks: WaitingAsks
  #return: Return | undefined = undefined
  #retry: Deadline | undefined = undefined
  #epoch = 1
  #isStopped = false

  constructor(
    own: Spawner,
    definition: ActorDefinition<Message, unknown>,
    options: KeyRouterOptions<Message, unknown>,
  ) {
    this.#runtime = own.runtime
    this.#options = options
    this.#holdMs = options.holdFor === undefined ? HOLD_MS_DEFAULT : toMs(options.holdFor)
    this.#tellsMax = options.mailbox?.capacity ?? CAPACITY_DEFAULT
    this.#asks = new WaitingAsks(own.runtime, options.name, message => this.#pick(message))
    const kind: MemberKind = { spawner: own, definition, options }
    this.#members = placementsOf(options, own.runtime).map(
      (placement, index) => new Member(kind, index, placement),
    )
    this.#owners = [...this.#members]
    for (const member of this.#members) this.#follow(member)
    this.#ends = own.ends
    this.#ends?.add(this.#end)
  }

  get epoch(): number {
    return this.#epoch
  }

  get members(): readonly KeyRouterMember<Message>[] {
    return this.#members
      .filter(({ state }) => state !== 'gone')
      .map(member => ({
        name: member.name,
        ref: member.ref,
        state: member.state !== 'owner' ? 'returning' : member.isDown ? 'down' : 'up',
      }))
  }

  refFor(key: RouterKey): ActorRef<Message> | undefined {
    return rendezvous(this.#owners, hashOfKey(key))?.ref
  }

  // ── Messages ─────────────────────────────────────────────────────────────────────────────────

  tell(message: Message): TellStatus {
    const member = this.#pick(message)
    if (member === undefined) {
      this.#runtime.deadLetter(this.#options.name, message.type, 'dead')
      return 'dead'
    }
    if (member.state === 'owner') return member.ref.tell(message)
    const { tells } = this.#return!
    if (tells.length >= this.#tellsMax) {
      this.#runtime.counts.refused++
      return 'full'
    }
    tells.push(message)
    return 'ok'
  }

  ask(message: { readonly type: string }, options: AskOptions): Promise<never> {
    const dueMs = this.#runtime.clock.nowMs() + toMs(options.timeout)
    const member = this.#pick(message)
    if (member?.state === 'owner' && !member.isDown) {
      const answer = member.ref.ask(message, options)
      return member.peer === undefined
        ? answer
        : answer.catch(error => this.#asks.askAgain(message, options, dueMs, error))
    }
    return this.#asks.askAgain(message, options, dueMs, undefined)
  }

  /** The owner of the message's key, or the member to which the key is on its way. */
  #pick(message: { readonly type: string }): Member | undefined {
    const key = hashOfKey(this.#options.by(message as never))
    const owner = rendezvous(this.#owners, key)
    const returning = this.#return?.member
    if (returning === undefined || owner === undefined) return owner
    return rendezvous([owner, returning], key)
  }

  // ── Members ──────────────────────────────────────────────────────────────────────────────────

  #follow(member: Member): void {
    if (member.peer !== undefined) this.#listen(member.peer)
    member.watch(() => this.#lose(member))
  }

  #listen(peer: Peer): void {
    if (this.#listeners.has(peer)) return
    const onIt = (): Member[] => this.#members.filter(member => member.peer === peer)
    const listener: PeerListener = {
      onDown: () => this.#down(onIt()),
      onEnded: () => this.#ended(onIt()),
      onUp: () => this.#up(onIt()),
      onGone: () => {
        for (const member of onIt()) this.#lose(member)
      },
    }
    this.#listeners.set(peer, listener)
    peer.listeners.add(listener)
  }

  /** A member on a thread of its own leaves one behind with every life. */
  #forgetLeftPeers(): void {
    for (const [peer, listener] of this.#listeners) {
      if (this.#members.some(member => member.peer === peer && member.state !== 'gone')) continue
      this.#listeners.delete(peer)
      peer.listeners.delete(listener)
    }
  }

  #down(members: readonly Member[]): void {
    for (const member of members) if (member.state === 'ready') member.state = 'returning'
    // Who owned the keys that return may have lost what they were told, and the member what it would be told.
    if (this.#return !== undefined) this.#endReturn(false)
    const owners = members.filter(({ state }) => state === 'owner')
    if (this.#options.whileDown === 'remap') {
      this.#remap(owners)
      return
    }
    for (const member of owners) {
      member.hold(this.#holdMs, () => {
        if (member.state !== 'owner' || !member.isDown) return
        this.#remap([...this.#owners.filter(other => other.isOverdue), member])
      })
    }
  }

  /** Their thread hung, and has ended only now: what waited for that may go on. */
  #ended(members: readonly Member[]): void {
    for (const member of members) if (member.isLost) this.#lose(member)
    if (members.some(({ isOverdue }) => isOverdue)) {
      this.#remap(this.#owners.filter(({ isOverdue }) => isOverdue))
    }
  }

  #up(members: readonly Member[]): void {
    for (const member of members) {
      member.endHold()
      if (member.state === 'returning') this.#probe(member)
    }
    this.#asks.resume()
  }

  /**
   * Gives the keys of owners that are down to the others, and spawns these members again. One whose thread has yet to
   * end, because it hung, keeps its keys until then.
   */
  #remap(overdue: readonly Member[]): void {
    for (const member of overdue) member.isOverdue = true
    const members = overdue.filter(({ isEnding }) => !isEnding)
    const left = this.#owners.filter(owner => !members.includes(owner))
    if (members.length === 0 || left.length === 0) return
    if (this.#return !== undefined) this.#endReturn(false)
    const tells = members.flatMap(member => member.fence())
    this.#setOwners(left)
    for (const member of members) {
      if (!member.spawnAgain()) continue
      this.#follow(member)
      this.#probe(member)
    }
    this.#forgetLeftPeers()
    for (const tell of tells) this.#tellAgain(tell)
    this.#asks.resume()
  }

  #setOwners(owners: Member[]): void {
    this.#owners = owners.toSorted((a, b) => a.index - b.index)
    this.#epoch++
    const { log } = this.#runtime
    log.debug({ router: this.#options.name, epoch: this.#epoch, owners: owners.length }, 'keys move')
  }

  /** A message that was answered 'ok' goes to whoever owns its key now. */
  #tellAgain(message: Message): void {
    const member = this.#pick(message)
    const status = member === undefined ? 'full' : member.ref.tell(message)
    if (status === 'full') {
      const reason = member === undefined ? 'dead' : 'overflow'
      this.#runtime.deadLetter(this.#options.name, message.type, reason)
    }
  }

  /** The member has ended for good, or its thread has. */
  #lose(member: Member): void {
    if (member.state === 'gone') return
    member.isLost = member.isEnding
    if (member.isLost) return
    const wasOwner = member.state === 'owner'
    if (this.#return !== undefined) this.#endReturn(false)
    const tells = member.isDown ? member.fence() : []
    member.forget()
    this.#forgetLeftPeers()
    if (wasOwner) {
      const left = this.#owners.filter(owner => owner !== member)
      this.#setOwners(left)
      if (left.length === 0) this.#adoptAny()
    }
    for (const tell of tells) this.#tellAgain(tell)
    this.#asks.resume()
  }

  /** The last owner is gone: one that is about to return has all keys. */
  #adoptAny(): void {
    const next = this.#members.filter(({ state }) => state === 'returning' || state === 'ready')
    if (next.length === 0) return
    for (const member of next) member.state = 'owner'
    this.#setOwners(next)
  }

  // ── Return of keys ───────────────────────────────────────────────────────────────────────────

  /** Asks a returning member for a sign of life, once its thread has one. */
  #probe(member: Member): void {
    const { ref } = member
    const isDue = (): boolean => !this.#isStopped && member.ref === ref && member.state === 'returning'
    if (!isDue() || member.isDown) return
    member.settle(ANSWER_MS_MAX).then(
      () => {
        if (isDue() && !member.isDown) this.#isBack(member)
      },
      () => {
        if (!isDue() || member.isDown) return
        const again: Deadline = { dueMs: 0, position: -1, expire: () => this.#probe(member) }
        this.#runtime.deadlines.add(again, RETRY_MS)
      },
    )
  }

  #isBack(member: Member): void {
    member.state = 'ready'
    const isNeeded = this.#owners.every(({ isOverdue }) => isOverdue)
    if (isNeeded || this.#options.rebalance !== 'never') this.#returnNext()
  }

  rebalance(): void {
    this.#returnNext()
  }

  #returnNext(): void {
    if (this.#return !== undefined || this.#isStopped) return
    const member = this.#members.find(({ state }) => state === 'ready')
    if (member === undefined) return
    const current: Return = { member, tells: [] }
    this.#return = current
    const owners = this.#owners.filter(({ isOverdue }) => !isOverdue)
    const limitMs = Math.max(RETURN_MS_MIN, this.#holdMs)
    Promise.all(owners.map(owner => owner.settle(limitMs))).then(
      () => {
        if (this.#return === current) this.#endReturn(true)
      },
      () => {
        if (this.#return === current) this.#endReturn(false)
      },
    )
  }

  #endReturn(isDone: boolean): void {
    const { member, tells } = this.#return!
    this.#return = undefined
    if (isDone) {
      member.state = 'owner'
      this.#setOwners([...this.#owners, member])
      this.#remap(this.#owners.filter(({ isOverdue }) => isOverdue))
    }
    for (const tell of tells) this.#tellAgain(tell)
    this.#asks.resume()
    if (isDone) {
      if (this.#options.rebalance !== 'never') this.#returnNext()
      return
    }
    if (this.#retry !== undefined) return
    const retry: Deadline = {
      dueMs: 0,
      position: -1,
      expire: () => {
        this.#retry = undefined
        this.#returnNext()
      },
    }
    this.#retry = retry
    this.#runtime.deadlines.add(retry, RETRY_MS)
  }

  stop(): void {
    if (this.#isStopped) return
    this.#isStopped = true
    this.#ends?.delete(this.#end)
    if (this.#return !== undefined) this.#endReturn(false)
    if (this.#retry !== undefined) this.#runtime.deadlines.remove(this.#retry)
    for (const member of this.#members) {
      if (member.state !== 'gone') member.stop()
    }
    this.#forgetLeftPeers()
    this.#owners = []
    this.#asks.resume()
  }
}

function placementsOf(options: KeyRouterOptions<Message, unknown>, runtime: Runtime): readonly Placement[] {
  const { over, name } = options
  if (!('pool' in over)) {
    if (over.length === 0) throw new RangeError(`cannot make router ${name} without members`)
    return over
  }
  const { pool, size } = over
  if (!Number.isInteger(size) || size < 1) {
    throw new RangeError(`cannot make router ${name} with ${size} members: use an integer ≥ 1`)
  }
  if (runtime.isAlone) return Array.from({ length: size }, () => 'here')
  const threads = runtime.pools.find(candidate => candidate.name === pool)?.threads ?? []
  const usable = threads.filter(thread => runtime.peers.get(thread)?.state !== 'gone')
  if (usable.length === 0) throw new UnknownThreadError(pool, 'the system has no thread of such a pool')
  return Array.from({ length: size }, (_, index) => usable[index % usable.length]!)
}
