/**
 * Attention groups: which events of a hybrid model describe prefix residency.
 *
 * A model with several cache groups publishes every block once per group, with the same hashes. Only a group
 * with full attention keeps whole prefixes; counting the others would promise cache that is not there. One
 * instance per event stream (worker key and epoch).
 *
 * Rules
 *   R1  A store without group and kind belongs to an engine without groups: accepted.
 *   R2  A store with an attention kind teaches the kind of its group; the kind decides.
 *   R3  Of the groups, only the main one is accepted. Once any kind is known, the main group is the first one
 *       that stored under a kind that keeps whole prefixes. An engine may have several of those: a prefix is
 *       of use only while all of them hold it.
 *   R4  Without any kind, the main group is the first one that is not known to be sparse; of several that are
 *       known at once, the lowest. A sparse group stored more tokens than its hashes cover.
 *   R5  A removal under a group that does not keep whole prefixes says nothing. A removal under the main
 *       group takes a copy. A removal under any other group, even one that never stored, or under none if the
 *       stores name groups, takes the block: it is not known which copies it means.
 */

import type { KvStored } from './kv-event.ts'

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
      if (wasAccepted) this.#mainGroup = id
    }
    this.#reviseAll()
  }

  /** Forgets everything: what comes is of another engine, or another life of one. */
  forget(): void {
    this.#groups.clear()
    this.#knowsKinds = false
    this.#mainGroup = undefined
  }

  /** True when a store describes prefix residency. Learns from it. */
  accepts(event: KvStored): boolean {
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
    const accepted = id === this.#mainGroup
    if (accepted) group.wasAccepted = true
    return accepted
  }

  /** What a removal under this group takes of a block that is held. */
  taken(id: number | undefined): 'copy' | 'block' | 'nothing' {
    if (id === undefined) return this.#groups.size === 0 ? 'copy' : 'block'
    const group = this.#groups.get(id)
    if (group === undefined) return 'block'
    if (id === this.#mainGroup) return 'copy'
    return group.isSparse || (group.kind !== undefined && !PREFIX_KINDS.has(group.kind)) ? 'nothing' : 'block'
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
    const before = this.#mainGroup
    this.#mainGroup = this.#knowsKinds ? this.#firstOfKind() : this.#lowestDense()
    if (before === undefined || before === this.#mainGroup) return
    const group = this.#groups.get(before)!
    if (group.wasAccepted) this.#revisions++
    group.wasAccepted = false
  }

  /** The one that was main stays it, while its kind allows. */
  #firstOfKind(): number | undefined {
    const isOfKind = ({ kind }: Group): boolean => kind !== undefined && PREFIX_KINDS.has(kind)
    const main = this.#mainGroup
    if (main !== undefined && isOfKind(this.#groups.get(main)!)) return main
    for (const [id, group] of this.#groups) if (isOfKind(group)) return id
    return undefined
  }

  /**
   * The one that was main stays it, while it is dense: that another one is seems so until it stores several
   * blocks.
   */
  #lowestDense(): number | undefined {
    const main = this.#mainGroup
    if (main !== undefined && !this.#groups.get(main)!.isSparse) return main
    let lowest: number | undefined
    for (const [id, group] of this.#groups) {
      if (!group.isSparse && (lowest === undefined || id < lowest)) lowest = id
    }
    return lowest
  }
}
