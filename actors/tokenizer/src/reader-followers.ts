/**
 * Reader followers: near tokenizers on the threads of gateways, which have the configuration of the readers.
 *
 * A follower says again and again which configuration it has. So one that missed a change, or has begun
 * anew, gets it within FOLLOW_MS, and so do all followers after a restart of the tokenizer.
 *
 * Bounds   FOLLOWERS_MAX; a follower that ends is forgotten.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import type { NearTokenizerMessage, TokenizerMessage } from './messages.ts'
import type { ReaderConfiguration } from './reader-tasks.ts'

/** How often a follower says what it has. */
export const FOLLOW_MS = 1000
/** More than there are gateways. */
const FOLLOWERS_MAX = 16
const FOLLOWED_LIFE_BYTES = 9

interface Follower {
  readonly ref: ActorRef<NearTokenizerMessage>
  readonly promptCacheBytes: number
  readonly wordTableBytes: number
}

type Follow = Extract<TokenizerMessage, { readonly type: 'follow' }>

export class ReaderFollowers {
  readonly #context: ActorContext<TokenizerMessage>
  readonly #life: string
  readonly #followers = new Map<string, Follower>()
  #configuration: ReaderConfiguration | undefined

  constructor(context: ActorContext<TokenizerMessage>) {
    this.#context = context
    this.#life = Buffer.from(context.random.bytes(FOLLOWED_LIFE_BYTES)).toString('base64url')
  }

  /** What all of them remember. */
  get bytes(): { readonly promptCacheBytes: number; readonly wordTableBytes: number } {
    let promptCacheBytes = 0
    let wordTableBytes = 0
    for (const follower of this.#followers.values()) {
      promptCacheBytes += follower.promptCacheBytes
      wordTableBytes += follower.wordTableBytes
    }
    return { promptCacheBytes, wordTableBytes }
  }

  configured(configuration: ReaderConfiguration): void {
    this.#configuration = configuration
    for (const { ref } of this.#followers.values()) this.#send(ref)
  }

  take({ follower: ref, has, promptCacheBytes, wordTableBytes }: Follow): void {
    if (!this.#followers.has(ref.key)) {
      if (this.#followers.size >= FOLLOWERS_MAX) {
        this.#context.log.error({ follower: ref.name, FOLLOWERS_MAX }, 'too many near tokenizers')
        return
      }
      this.#context.watch(ref)
    }
    this.#followers.set(ref.key, { ref, promptCacheBytes, wordTableBytes })
    if (has !== this.#name) this.#send(ref)
  }

  remove(key: string): void {
    this.#followers.delete(key)
  }

  get #name(): string {
    return `${this.#life}/${this.#configuration?.version ?? 0}`
  }

  #send(ref: ActorRef<NearTokenizerMessage>): void {
    const configuration = this.#configuration
    if (configuration !== undefined) ref.tell({ type: 'configure', name: this.#name, configuration })
  }
}
