/** Lives of threads: a thread that ends is replaced by another of the same name. */

/** Name of the thread that keeps the others. */
export const MAIN = 'main'

/** Stands for the life of a thread that has none now. */
export const AWAY = 0

/** One life of a thread; a name may have many, one after the other. */
export interface Life {
  readonly name: string
  /** Unique in the system. */
  readonly uid: number
}
