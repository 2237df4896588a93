/**
 * The peers of a ROUTER that may still be there: each has sent something and was not yet found gone.
 *
 * libzmq reports that a peer has gone only when a message is sent to it. Beyond PEERS_MAX the peer that has
 * been silent longest is forgotten.
 */

const PEERS_MAX = 16_384

export class PeerNames {
  readonly #names = new Set<string>()

  add(identity: Uint8Array): void {
    const name = latin1(identity)
    if (this.#names.delete(name)) {
      this.#names.add(name)
      return
    }
    this.#names.add(name)
    if (this.#names.size <= PEERS_MAX) return
    for (const oldest of this.#names) {
      this.#names.delete(oldest)
      break
    }
  }

  has(identity: Uint8Array): boolean {
    return this.#names.has(latin1(identity))
  }

  delete(identity: Uint8Array): void {
    this.#names.delete(latin1(identity))
  }
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1')
}
