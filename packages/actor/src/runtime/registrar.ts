/** Registrar: the keeper of the list of threads: main itself, or main reached by frames. */

import type { Registration } from '../links/frames.ts'

/** Main's list of threads, and of the actors that must follow them, as a runtime reaches it. */
export interface Registrar {
  register(registration: Registration): void
  /** The actor is to be brought back no more, and stopped where it may still run. */
  unregister(id: number): void
  resolve(thread: string): void
}
