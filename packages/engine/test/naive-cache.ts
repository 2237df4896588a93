/**
 * Naive block cache: the rules of `BlockManager` written with strings, arrays and searches. Blocks are named
 * by their whole token path, so it has no hashes that could be wrong.
 */

export interface NaiveBlock {
  path: string | undefined
  references: number
}

export interface NaiveSequence {
  readonly label: string
  readonly tokenIds: number[]
  readonly blocks: NaiveBlock[]
  cachedBlocks: number
}

export type NaiveEvent =
  | { readonly type: 'stored'; readonly paths: readonly string[] }
  | { readonly type: 'removed'; readonly path: string }
  | { readonly type: 'cleared' }

export class NaiveCache {
  readonly blockSizeTokens: number
  readonly blocks: NaiveBlock[] = []
  /** Oldest first. */
  free: NaiveBlock[] = []
  /** In order of storing. */
  cached: NaiveBlock[] = []
  events: NaiveEvent[] = []

  constructor(blockSizeTokens: number, blockCount: number) {
    this.blockSizeTokens = blockSizeTokens
    for (let i = 1; i < blockCount; i++) this.blocks.push({ path: undefined, references: 0 })
    this.free = [...this.blocks]
  }

  open(tokenIds: readonly number[], label: string): NaiveSequence {
    return { label, tokenIds: [...tokenIds], blocks: [], cachedBlocks: 0 }
  }

  path(sequence: NaiveSequence, blockIndex: number): string {
    return `${sequence.label}:${sequence.tokenIds.slice(0, (blockIndex + 1) * this.blockSizeTokens).join(',')}`
  }

  match(sequence: NaiveSequence): number {
    let hits = 0
    while ((hits + 1) * this.blockSizeTokens <= sequence.tokenIds.length - 1) {
      const path = this.path(sequence, hits)
      if (!this.cached.some(block => block.path === path)) break
      hits++
    }
    return hits
  }

  reuse(sequence: NaiveSequence, hits: number): void {
    for (let i = 0; i < hits; i++) {
      const path = this.path(sequence, i)
      const block = this.cached.find(candidate => candidate.path === path)!
      block.references++
      this.free = this.free.filter(other => other !== block)
      sequence.blocks.push(block)
    }
    sequence.cachedBlocks = hits
  }

  allocate(sequence: NaiveSequence, tokens: number): boolean {
    const missing = Math.ceil(tokens / this.blockSizeTokens) - sequence.blocks.length
    if (missing > this.free.length) return false
    for (let i = 0; i < missing; i++) {
      const block = this.free.shift()!
      if (block.path !== undefined) {
        this.events.push({ type: 'removed', path: block.path })
        block.path = undefined
        this.cached = this.cached.filter(other => other !== block)
      }
      block.references = 1
      sequence.blocks.push(block)
    }
    return true
  }

  store(sequence: NaiveSequence, tokens: number): void {
    const paths: string[] = []
    while ((sequence.cachedBlocks + 1) * this.blockSizeTokens <= tokens) {
      const index = sequence.cachedBlocks++
      const block = sequence.blocks[index]!
      block.path = this.path(sequence, index)
      this.cached.push(block)
      paths.push(block.path)
    }
    if (paths.length > 0) this.events.push({ type: 'stored', paths })
  }

  release(sequence: NaiveSequence): void {
    for (const block of sequence.blocks.reverse()) {
      if (--block.references > 0) continue
      if (block.path === undefined) this.free.unshift(block)
      else this.free.push(block)
    }
    sequence.blocks.length = 0
    sequence.cachedBlocks = 0
  }

  clear(): boolean {
    if (this.free.length !== this.blocks.length) return false
    for (const block of this.blocks) block.path = undefined
    this.cached = []
    this.events.push({ type: 'cleared' })
    return true
  }
}
