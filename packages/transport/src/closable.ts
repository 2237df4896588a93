/** Closable: what its owner closes. */

export interface Closable {
  close(): void
}
