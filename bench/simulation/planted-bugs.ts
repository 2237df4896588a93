/**
 * The bugs that `find-bugs.ts` plants: one place of a source file each, or several, changed as it is loaded.
 */

/** One place. */
export interface Change {
  /** Path from the root. */
  readonly file: string
  /** Occurs there once. */
  readonly right: string
  readonly wrong: string
}

export interface PlantedBug extends Change {
  readonly what: string
  readonly scenario: 'toys' | 'router' | 'queue' | 'lives'
  /** Found once in tens of thousands of seeds: the hunt begins with one that is known to. */
  readonly from?: number
  /** Further places without which it would show elsewhere, or not at all. */
  readonly also?: readonly Change[]
}

export function changesOf({ also = [], ...bug }: PlantedBug): readonly Change[] {
  return [bug, ...also]
}

export const PLANTED_BUGS: readonly PlantedBug[] = [
  {
    what: 'one restart more than the budget allows',
    scenario: 'toys',
    file: 'packages/actor/src/cell/supervision.ts',
    right: 'if (times.length >= settings.restartsMax) return undefined',
    wrong: 'if (times.length > settings.restartsMax) return undefined',
  },
  {
    what: 'messages that overtook the spawn of their receiver are handed over last first',
    scenario: 'toys',
    file: 'packages/actor/src/runtime/limbo.ts',
    right: 'for (const held of this.#take(cell.id)) held.deliver(cell)',
    wrong: 'for (const held of this.#take(cell.id).toReversed()) held.deliver(cell)',
  },
  {
    what: 'actors on other threads outlive a parent that died with its thread',
    scenario: 'toys',
    file: 'packages/actor/src/runtime/kinship.ts',
    right: 'if (parent.thread === thread && parent.uid === uid) cell.requestStop()',
    wrong: '',
  },
  {
    what: 'a restart loses the mailbox',
    scenario: 'toys',
    file: 'packages/actor/src/cell/cell.ts',
    right: '    failTakenAsks(this, () => this.mailbox.waiting())\n    host.log.warn',
    wrong: '    this.dropAll()\n    host.log.warn',
  },
  {
    what: 'actors of a lost thread are not spawned again',
    scenario: 'toys',
    file: 'packages/actor/src/threads/registrations.ts',
    right: '      entry.restartTimesMs.push(nowMs)\n      entry.uid = 0',
    wrong: '      entry.restartTimesMs.push(nowMs)',
  },
  {
    what: 'a watch that was set while its thread was being replaced is forgotten',
    scenario: 'toys',
    file: 'packages/actor/src/runtime/peer-lives.ts',
    right: 'isHeir ? [...peer.watches.keys()] : []',
    wrong: '[] as number[]',
  },
  {
    what: 'a gap in the KV events is taken for the next batch',
    scenario: 'router',
    file: 'actors/listener/src/sequence-follower.ts',
    right: '    if (sequence === history.expected) {\n      const applied = history.apply(',
    wrong: '    if (sequence >= history.expected!) {\n      const applied = history.apply(',
  },
  {
    what: 'a replay with a hole is taken for whole',
    scenario: 'router',
    file: 'actors/listener/src/attempts.ts',
    right: 'const isComplete = reachesLive && !hadHole',
    wrong: 'const isComplete = true',
  },
  {
    what: 'the booking of a client who left is not freed',
    scenario: 'router',
    file: 'actors/gateway/src/exchange-end.ts',
    right: "    this.#settle({ outcome: 'aborted', wasTaken: this.#mayBeTaken })\n",
    wrong: '    this.#steps.calls.abort()\n    this.#settled()\n',
  },
  {
    what: 'the booking of a worker that failed is not freed when the request is placed again',
    scenario: 'router',
    file: 'actors/gateway/src/exchange-turns.ts',
    right: 'this.#end.leave({ outcome, error, wasTaken, isPlacedAgain: true, otherLeg })',
    wrong: '',
  },
  {
    what: 'an actor whose thread hung is taken for lost',
    scenario: 'router',
    file: 'packages/actor/src/contract/terminated.ts',
    right: "reason === 'threadExit' || reason === 'threadHung' || reason === 'threadOom'",
    wrong: "reason === 'threadExit'",
  },
  {
    what: 'a request that leaves the queue keeps its room there',
    scenario: 'queue',
    file: 'packages/queue/src/priority-queue.ts',
    right: 'this.#room.leave(entry.place!)',
    wrong: '',
  },
  {
    what: 'a heap of requests loses its order when one leaves',
    scenario: 'queue',
    file: 'packages/queue/src/indexed-heap.ts',
    right: 'if (last !== item) this.#settle(last, at)',
    wrong: 'if (last !== item) this.#put(last, at)',
  },
  {
    what: 'a lower strict priority goes before a higher one',
    scenario: 'queue',
    file: 'packages/queue/src/strict-priorities.ts',
    right: 'const at = this.#levels.findIndex(level => level.strictPriority <= strictPriority)',
    wrong: 'const at = this.#levels.findIndex(level => level.strictPriority >= strictPriority)',
  },
  {
    what: 'the shares of tenants do not go by their weights',
    scenario: 'queue',
    file: 'packages/queue/src/fair-flows.ts',
    right: 'flow.startTag = this.#virtualTime + entry.costTokens / flow.tenant.weight',
    wrong: 'flow.startTag = this.#virtualTime + entry.costTokens',
  },
  {
    what: 'a request waits while one of the workers has no room',
    scenario: 'queue',
    file: 'packages/queue/src/room-rules.ts',
    right: 'for (let i = 0; i < count; i++) if (!isPast(rule, workerAt(i))) return false',
    wrong: 'for (let i = 0; i < 1; i++) if (!isPast(rule, workerAt(i))) return false',
  },
  {
    what: 'the queue forgets to look again',
    scenario: 'queue',
    file: 'actors/queue/src/queue.ts',
    right: "this.#context.schedule(dueMs, { type: 'look' })",
    wrong: '',
  },
  {
    what: 'the router is not told of a request that ended while it was asked about',
    scenario: 'queue',
    file: 'actors/queue/src/queue.ts',
    right: 'placed.settled(message.id, undefined, this.#nowMs)\n    this.#tellRouter(message)',
    wrong:
      'placed.settled(message.id, undefined, this.#nowMs)\n    if (open === undefined) this.#tellRouter(message)',
  },
  {
    what: 'what waits is refused by a router that has just begun',
    scenario: 'queue',
    file: 'actors/router/src/decider.ts',
    right: 'mayWait: roomRules !== undefined,',
    wrong: 'mayWait: false,',
  },
  // Of the histories of lives in test/faults: each of these was once so.
  {
    what: 'a report of a prefix of one block counts as a copy of it',
    scenario: 'lives',
    file: 'packages/protocol/src/cache-reading.ts',
    right: `addsCopies({ tier, parent }: KvStored): boolean {
  return tier === 'device' && parent !== undefined`,
    wrong: `addsCopies({ tier, parent, hashes }: KvStored): boolean {
  return tier === 'device' && (parent !== undefined || hashes.length === 2)`,
  },
  {
    what: 'a removal takes one copy of a block, of an engine that tells only of the last',
    scenario: 'lives',
    file: 'packages/protocol/src/cache-reading.ts',
    right: "else blocks.remove('device', rest, 'set', this.#remember)",
    wrong: "else blocks.remove('device', rest, 'count', nobody)",
  },
  {
    what: 'a removal under a group that never stored is passed over',
    scenario: 'lives',
    file: 'packages/protocol/src/attention-groups.ts',
    right: "if (group === undefined) return 'block'",
    wrong: "if (group === undefined) return 'nothing'",
  },
  {
    what: 'a removal under no group is passed over where stores name groups',
    scenario: 'lives',
    file: 'packages/protocol/src/attention-groups.ts',
    right: "return this.#groups.size === 0 ? 'copy' : 'block'",
    wrong: "return this.#groups.size === 0 ? 'copy' : 'nothing'",
  },
  {
    what: 'a sidecar calls its history whole after an event of an unknown kind',
    scenario: 'lives',
    file: 'packages/publisher/src/sidecar.ts',
    right: 'const isReadWhole = unreadEvents(batch) === 0',
    wrong: 'const isReadWhole = true',
  },
  {
    what: 'a sidecar that polls passes over events of an unknown type',
    scenario: 'lives',
    file: 'packages/publisher/src/polled-sidecar.ts',
    right: 'if (skipped.unknownTag > 0) {',
    wrong: 'if (skipped.unknownTag < 0) {',
  },
  {
    what: 'an indexer follows one endpoint for two instances',
    scenario: 'lives',
    file: 'actors/index-service/src/registry.ts',
    right: 'if (clash !== undefined) {',
    wrong: 'if (clash === null) {',
  },
  {
    what: "a peer's dump is believed whatever engine it is of",
    scenario: 'lives',
    file: 'actors/index-service/src/inheritance.ts',
    right: 'const why = dump && whyOtherEngine(dump, rank, url)',
    wrong: 'const why = dump && (undefined as ReturnType<typeof whyOtherEngine>)',
  },
  {
    what: 'two workers are followed on one socket',
    scenario: 'lives',
    file: 'actors/directory/src/key-trust.ts',
    right: 'const clash = this.#options.claims.clashOf(name)',
    wrong: "const clash = undefined as ReturnType<SocketClaims['clashOf']>",
  },
  {
    what: 'blocks that may be of a salted prompt are credited to those without',
    scenario: 'lives',
    file: 'actors/indexer/src/event-applier.ts',
    right: 'if (separated !== undefined) {\n      slot.unknownSeparators',
    wrong: 'if (separated === null) {\n      slot.unknownSeparators',
  },
  {
    what: 'what is not remembered counts as replayed, behind a restart in place that nobody heard',
    scenario: 'lives',
    file: 'actors/listener/src/life.ts',
    right: "return this.#link === 'linked' || isBehind ? 'replayed' : 'doubtful'",
    wrong: "return isBehind ? 'replayed' : 'replayed'",
  },
  {
    what: 'another life goes on where the one before it ended',
    scenario: 'lives',
    file: 'actors/listener/src/replay.ts',
    right: "if (life.compare(sequence, fingerprint) !== 'same') return this.#otherHistory(sequence)",
    wrong: '',
    also: [
      {
        file: 'actors/listener/src/replay.ts',
        right: "if (likeness === 'other') return this.#otherHistory(sequence)",
        wrong: '',
      },
      {
        file: 'actors/listener/src/replay.ts',
        right: "if (heard === 'other') return NOT_THE_LIVE_ONE",
        wrong: '',
      },
    ],
  },
  {
    what: 'a replay of a neighbour is believed against the live socket',
    scenario: 'lives',
    file: 'actors/listener/src/replay.ts',
    right: "if (heard === 'other') return NOT_THE_LIVE_ONE",
    wrong: '',
    also: [
      {
        file: 'actors/listener/src/replay.ts',
        right: 'if (isMarked && this.#lacksLive()) {',
        wrong: 'if (isMarked && this.#lacksLive() && !this.#hasTold) {',
      },
    ],
  },
  {
    what: 'contradictions are never too many',
    scenario: 'lives',
    file: 'actors/listener/src/contradictions.ts',
    right: "if (!isProof && this.#state.is === 'none' && this.#recent.length < contradictionsMax) return",
    wrong: 'if (!isProof || this.#recent.length > contradictionsMax) return',
  },
  {
    what: 'two dp ranks on one socket are a restart',
    scenario: 'lives',
    file: 'actors/listener/src/contradictions.ts',
    right: "if (!isProof && this.#state.is === 'none' &&",
    wrong: "if (this.#state.is === 'none' &&",
  },
  {
    what: 'a batch that comes late is a restart',
    scenario: 'lives',
    file: 'actors/listener/src/sequence-follower.ts',
    right: "if (this.#newest === undefined || (verdict !== 'restarted' && !isOpen)) return false",
    wrong: "if (this.#newest !== null || (verdict !== 'restarted' && !isOpen)) return false",
  },
  {
    what: 'what a replay tells behind the live batches that it joins is thrown away',
    scenario: 'lives',
    file: 'actors/listener/src/replay.ts',
    right: "return drained === 'empty' ? JOINED : MORE",
    wrong: "return drained === 'empty' ? LIVE : MORE",
  },
  {
    what: 'batches of a clock that stands still are compared by their heads',
    scenario: 'lives',
    file: 'actors/listener/src/seen-batches.ts',
    right: 'for (; i + 4 <= length; i += 4) {',
    wrong: 'for (; i + 4 <= Math.min(32, length); i += 4) {',
    also: [
      {
        file: 'actors/listener/src/seen-batches.ts',
        right: 'for (; i < length; i++) hash',
        wrong: 'for (; i < Math.min(32, length); i++) hash',
      },
    ],
  },
  {
    what: 'a snapshot of a process that is over is believed',
    scenario: 'lives',
    file: 'actors/listener/src/snapshots.ts',
    right: 'return publisherId === this.#outdatedId',
    wrong: "return publisherId === ''",
  },
  {
    what: 'a sidecar follows two publishers',
    scenario: 'lives',
    file: 'packages/publisher/src/setbacks.ts',
    right: "if (!isProof && this.state === 'none' && this.#recentMs.length < SETBACKS_MAX) return false",
    wrong: "if (!isProof || this.state === 'none') return false",
  },
  {
    what: 'a sidecar takes a batch that comes late for a restart',
    scenario: 'lives',
    file: 'packages/publisher/src/sidecar.ts',
    right: 'if (batch !== undefined && batch.timestampSeconds <= this.#lastSeconds) {',
    wrong: 'if (batch === null) {',
  },
  {
    what: 'a checkpoint of another process is believed',
    scenario: 'lives',
    file: 'actors/listener/src/checkpoints.ts',
    right: '} else if (isOtherProcessStart(checkpoint?.processStartSeconds, startSeconds)) {',
    wrong: '} else if (isOtherProcessStart(startSeconds, startSeconds)) {',
  },
  {
    what: 'a checkpoint that is being written while answers contradict it is kept',
    scenario: 'lives',
    file: 'actors/listener/src/checkpoints.ts',
    right: 'if (this.#underWay !== undefined) this.#underWay.isVoid = true',
    wrong: '',
  },
  {
    what: 'a batch of the life before, behind a hole, begins a history',
    scenario: 'lives',
    from: 206_502,
    file: 'actors/listener/src/sequence-follower.ts',
    right: "const isOpen = liveMax < 0 || (verdict === 'new' && isBehindHole)",
    wrong: 'const isOpen = liveMax < 0',
  },
  {
    what: 'a hole that another life fills late is believed',
    scenario: 'lives',
    from: 218_008,
    file: 'actors/listener/src/recovery.ts',
    right: 'if (toRepeat !== undefined) life.openSeam(toRepeat)',
    wrong: '',
  },
  {
    what: 'a checkpoint is exact however little of it is repeated',
    scenario: 'lives',
    from: 203_087,
    file: 'actors/listener/src/history.ts',
    right: 'if (!repeated.has(sequence)) this.#unproven.add(sequence)',
    wrong: '',
  },
  {
    what: 'what a sidecar told between two restarts is believed behind the second',
    scenario: 'lives',
    from: 308_993,
    file: 'actors/listener/src/snapshots.ts',
    right: 'if (!this.#hasWithdrawn || isOlder)',
    wrong: 'if (!this.#hasWithdrawn)',
  },
  {
    what: 'a sidecar believes a batch left over from the life before',
    scenario: 'lives',
    from: 404_064,
    file: 'packages/publisher/src/sidecar.ts',
    right: 'const isOlder = batch !== undefined && batch.timestampSeconds < this.#lastSeconds',
    wrong: 'const isOlder = batch === null',
  },
  {
    what: 'checks put off the comparison with a replay that failed',
    scenario: 'lives',
    from: 404_464,
    file: 'actors/listener/src/live-watch.ts',
    right: 'this.#compareDueMs ??= nowMs() + limits.replayPauseMs',
    wrong: 'this.#compareDueMs = nowMs() + limits.replayPauseMs',
  },
  {
    what: 'an index service that is stopped while it starts binds its port',
    scenario: 'lives',
    file: 'packages/http/src/json-service.ts',
    right: '    this.#isClosed = true',
    wrong: '    this.#isClosed = false',
  },
]
