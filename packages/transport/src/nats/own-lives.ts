/** Own lives: what the roles of one process know of each other under an endpoint. */

import { systemRandom } from '@homing/base'
import { ListenError } from '../errors.ts'
import type { Lives } from './lives.ts'
import { LIFE_BYTES } from './payload.ts'

type Kind = 'publish' | 'serve'

export class OwnLives {
  /** 16 hexadecimal digits, others each time. */
  readonly newLife: () => string
  readonly #lives = new Map<string, { readonly life: string; readonly kinds: Set<Kind> }>()
  readonly #followers = new Map<string, Set<Lives>>()

  constructor(newLife: () => string = () => Buffer.from(systemRandom.bytes(LIFE_BYTES)).toString('hex')) {
    this.newLife = newLife
  }

  /**
   * The life under `endpoint`, shared by its one publisher and one server. A second of a kind throws
   * ListenError.
   */
  take(endpoint: string, kind: Kind): string {
    const own = this.#lives.get(endpoint) ?? { life: this.newLife(), kinds: new Set() }
    if (own.kinds.has(kind))
      throw new ListenError(endpoint, new Error('EADDRINUSE, this process has it already'))
    own.kinds.add(kind)
    this.#lives.set(endpoint, own)
    return own.life
  }

  giveBack(endpoint: string, kind: Kind): void {
    const own = this.#lives.get(endpoint)
    own?.kinds.delete(kind)
    if (own?.kinds.size === 0) this.#lives.delete(endpoint)
  }

  follow(endpoint: string, lives: Lives): void {
    const others = this.#followers.get(endpoint) ?? new Set()
    this.#followers.set(endpoint, others.add(lives))
  }

  unfollow(endpoint: string, lives: Lives): void {
    const others = this.#followers.get(endpoint)
    others?.delete(lives)
    if (others?.size === 0) this.#followers.delete(endpoint)
  }

  /** Whom a subscriber of this process follows there. */
  followedAt(endpoint: string): string | undefined {
    return this.livesAt(endpoint)?.followed
  }

  /** The namespace whose stream has all that was published there, as the publisher says; '': none. */
  storedAt(endpoint: string): string {
    return this.livesAt(endpoint)?.storedIn ?? ''
  }

  /** What a subscriber of this process knows of the life that it follows there. */
  livesAt(endpoint: string): Lives | undefined {
    for (const lives of this.#followers.get(endpoint) ?? []) if (lives.followed !== undefined) return lives
    return undefined
  }
}
