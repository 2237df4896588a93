/**
 * The last batches seen of one epoch: tells a batch that came again from a new batch under an old number.
 *
 *   sequence modulo capacity  ->  sequence, fingerprint
 *
 * A fingerprint covers the length, the head (where the time stamp is) and the tail of a payload: two
 * batches of one engine differ there, and a batch that is repeated does not.
 */

const HEAD_BYTES = 32
const TAIL_BYTES = 16

export class SeenBatches {
  readonly #sequences: Float64Array
  readonly #fingerprints: Int32Array

  /** Remembers the last `capacity` sequences. */
  constructor(capacity: number) {
    this.#sequences = new Float64Array(capacity).fill(-1)
    this.#fingerprints = new Int32Array(capacity)
  }

  reset(): void {
    this.#sequences.fill(-1)
  }

  add(sequence: number, payload: Uint8Array): void {
    this.addFingerprint(sequence, fingerprintOf(payload))
  }

  addFingerprint(sequence: number, fingerprint: number): void {
    const slot = sequence % this.#sequences.length
    this.#sequences[slot] = sequence
    this.#fingerprints[slot] = fingerprint
  }

  /** Undefined: not remembered. */
  fingerprintOf(sequence: number): number | undefined {
    return this.has(sequence) ? this.#fingerprints[sequence % this.#sequences.length] : undefined
  }

  /** `same` or `other`: this sequence was seen with this or another content; `unknown`: not remembered. */
  compare(sequence: number, payload: Uint8Array): 'same' | 'other' | 'unknown' {
    const slot = sequence % this.#sequences.length
    if (this.#sequences[slot] !== sequence) return 'unknown'
    return this.#fingerprints[slot] === fingerprintOf(payload) ? 'same' : 'other'
  }

  has(sequence: number): boolean {
    return sequence >= 0 && this.#sequences[sequence % this.#sequences.length] === sequence
  }
}

/** FNV-1a over the length, the first and the last bytes. */
export function fingerprintOf(payload: Uint8Array): number {
  let hash = Math.imul(0x811c9dc5 ^ payload.length, 0x01000193)
  const head = Math.min(HEAD_BYTES, payload.length)
  for (let i = 0; i < head; i++) hash = Math.imul(hash ^ payload[i]!, 0x01000193)
  for (let i = Math.max(head, payload.length - TAIL_BYTES); i < payload.length; i++) {
    hash = Math.imul(hash ^ payload[i]!, 0x01000193)
  }
  return hash | 0
}
