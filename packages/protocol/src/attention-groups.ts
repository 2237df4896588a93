/**
 * Which events of a hybrid model describe prefix residency.
 *
 * A model with several cache groups publishes every block once per group, with the same hashes.
 * Only a group with full attention keeps whole prefixes; counting the others would promise cache
 * that is not there. One instance per event stream (worker key and epoch).
 *
 * Rules
 *   R1  An event without group and kind belongs to an engine without groups: accepted.
 *   R2  A store with an attention kind teaches the kind of its group; the kind decides.
 *   R3  Once any kind is known, a group of unknown kind is not accepted.
 *   R4  Without any kind, the main group is the lowest one that has not shown to be sparse, that is
 *       stored more tokens than its hashes cover; only it is accepted.
 *   R5  A removal follows what is known of its group; a group that never stored has nothing to remove.
 */

import type { KvRemoved, KvStored } from './kv-event.ts'

const PREFIX_KINDS: ReadonlySet<string> = new Set(['full_attention', 'mla_attention', 'sink_full_attention'])

/** Groups remembered per stream: engines have fewer than ten, a hostile stream could name any number. */
const GROUPS_MAX = 256

interface Group {
  kind: string | undefined
  isSparse: boolean
  wasAccepted: boolean
}

/** What is known of one group. */
export interface AttentionGroupRecord extends Readonly<Group> {
  readonly id: number
}

export class AttentionGroups {
  readonly #groups = new Map<number, Group>()
  #knowsKinds = false
  #mainGroup: number | undefined
  #revisions = 0

  /**
   * Grows when a group whose events were accepted turns out not to describe prefixes: what was
   * indexed so far is unreliable, and the stream should be indexed anew.
   */
  get revisions(): number {
    return this.#revisions
  }

  /** What was learned, for `learn` of another instance. */
  records(): readonly AttentionGroupRecord[] {
    return [...this.#groups].map(([id, group]) => ({ id, ...group }))
  }

  /** Takes over what another instance has learned of the same stream; this one knows nothing yet. */
  learn(records: readonly AttentionGroupRecord[]): void {
    for (const { id, kind, isSparse, wasAccepted } of records.slice(0, GROUPS_MAX)) {
      this.#groups.set(id, { kind, isSparse, wasAccepted })
      this.#knowsKinds ||= kind !== undefined
    }
    this.#reviseAll()
  }

  /** True when `event` describes prefix residency. Learns from stores. */
  accepts(event: KvStored | KvRemoved): boolean {
    return event.kind === 'stored' ? this.#acceptsStore(event) : this.#acceptsGroup(event.group)
  }

  #acceptsStore(event: KvStored): boolean {
    const { group: id, attention } = event
    if (id === undefined) return attention === undefined || PREFIX_KINDS.has(attention)
    const group = this.#group(id)
    if (group === undefined) return false
    if (attention !== undefined && attention !== group.kind) {
      group.kind = attention
      this.#knowsKinds = true
      this.#reviseAll()
    } else if (!this.#knowsKinds) {
      group.isSparse ||= event.tokens.length > (event.hashes.length / 2) * event.blockSizeTokens
      this.#reviseAll()
    }
    const accepted = this.#acceptsGroup(id)
    if (accepted) group.wasAccepted = true
    return accepted
  }

  #acceptsGroup(id: number | undefined): boolean {
    if (id === undefined) return true
    const group = this.#groups.get(id)
    if (group === undefined) return false
    if (this.#knowsKinds) return group.kind !== undefined && PREFIX_KINDS.has(group.kind)
    return id === this.#mainGroup
  }

  #group(id: number): Group | undefined {
    const known = this.#groups.get(id)
    if (known !== undefined || this.#groups.size >= GROUPS_MAX) return known
    const group: Group = { kind: undefined, isSparse: false, wasAccepted: false }
    this.#groups.set(id, group)
    return group
  }

  /** Finds the main group again and notices verdicts that are taken back. */
  #reviseAll(): void {
    this.#mainGroup = undefined
    for (const [id, group] of this.#groups) {
      if (!group.isSparse && (this.#mainGroup === undefined || id < this.#mainGroup)) this.#mainGroup = id
    }
    for (const [id, group] of this.#groups) {
      if (group.wasAccepted && !this.#acceptsGroup(id)) {
        group.wasAccepted = false
        this.#revisions++
      }
    }
  }
}
