/** The bugs that `find-bugs.ts` plants: one place of a source file each, changed as it is loaded. */

export interface PlantedBug {
  readonly what: string
  readonly scenario: 'toys' | 'key routers' | 'router'
  /** Path from the root. */
  readonly file: string
  /** Occurs there once. */
  readonly right: string
  readonly wrong: string
}

export const PLANTED_BUGS: readonly PlantedBug[] = [
  {
    what: 'one restart more than the budget allows',
    scenario: 'toys',
    file: 'packages/actor/src/supervision.ts',
    right: 'if (times.length >= settings.restartsMax) return undefined',
    wrong: 'if (times.length > settings.restartsMax) return undefined',
  },
  {
    what: 'messages that overtook the spawn of their receiver are handed over last first',
    scenario: 'toys',
    file: 'packages/actor/src/limbo.ts',
    right: 'for (const held of this.#take(cell.id)) held.deliver(cell)',
    wrong: 'for (const held of this.#take(cell.id).toReversed()) held.deliver(cell)',
  },
  {
    what: 'actors on other threads outlive a parent that died with its thread',
    scenario: 'toys',
    file: 'packages/actor/src/kinship.ts',
    right: 'if (parent.thread === thread && parent.uid === uid) cell.requestStop()',
    wrong: '',
  },
  {
    what: 'a restart loses the mailbox',
    scenario: 'toys',
    file: 'packages/actor/src/cell.ts',
    right: '    this.unstash()\n    failTakenAsks(',
    wrong: '    this.dropAll()\n    failTakenAsks(',
  },
  {
    what: 'actors of a lost thread are not spawned again',
    scenario: 'toys',
    file: 'packages/actor/src/registrations.ts',
    right: '      entry.restartTimesMs.push(nowMs)\n      entry.uid = 0',
    wrong: '      entry.restartTimesMs.push(nowMs)',
  },
  {
    what: 'a watch that was set while its thread was being replaced is forgotten',
    scenario: 'toys',
    file: 'packages/actor/src/peers.ts',
    right: "peer.state === 'down' ? [...peer.watches.keys()] : []",
    wrong: '[] as number[]',
  },
  {
    what: 'keys return to a member while their owners have them in hand',
    scenario: 'key routers',
    file: 'packages/actor/src/key-router.ts',
    right: 'owners.map(owner => owner.settle(limitMs))',
    wrong: '[]',
  },
  {
    what: 'a gap in the KV events is taken for the next batch',
    scenario: 'router',
    file: 'actors/listener/src/sequence-follower.ts',
    right: '    if (sequence === this.#expected) {\n      if (this.#apply(',
    wrong: '    if (sequence >= this.#expected!) {\n      if (this.#apply(',
  },
  {
    what: 'a replay with a hole is taken for whole',
    scenario: 'router',
    file: 'actors/listener/src/sequence-follower.ts',
    right: "const isComplete = drained === 'empty' && !this.#attemptHadHole && ",
    wrong: "const isComplete = drained !== 'refused' && ",
  },
  {
    what: 'the booking of a client who left is not freed',
    scenario: 'router',
    file: 'actors/dispatcher/src/dispatcher.ts',
    right: "    this.#endCall(exchange)\n    this.#settle(exchange, 'aborted', undefined)",
    wrong: '    this.#endCall(exchange)',
  },
  {
    what: 'the booking of a worker that failed is not freed when the request is placed again',
    scenario: 'router',
    file: 'actors/dispatcher/src/dispatcher.ts',
    right: "this.#settle(exchange, 'error', toErrorRecord(new UpstreamFailedError(lost.worker, reason)))",
    wrong: '',
  },
  {
    what: 'an actor whose thread hung is taken for lost',
    scenario: 'router',
    file: 'packages/actor/src/terminated.ts',
    right: "reason === 'threadExit' || reason === 'threadHung' || reason === 'threadOom'",
    wrong: "reason === 'threadExit'",
  },
]
