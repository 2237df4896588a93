/**
 * Ids of actors and numbers of asks: unique in the system for its whole life. Each is the uid of the thread
 * life that made it, times ID_SPAN, plus a count.
 *
 * A ref holds the name of its thread and the id, not the life of the thread, so it reaches an actor that was
 * spawned again after its thread was lost.
 */

export const ID_SPAN = 2 ** 32

/** The life that made an id. */
export function uidOf(id: number): number {
  return Math.floor(id / ID_SPAN)
}
