/** LazySet: a set that costs little until something is in it. */

export class LazySet<T> {
  #set: Set<T> | undefined = undefined

  add(value: T): void {
    this.#set ??= new Set()
    this.#set.add(value)
  }

  delete(value: T): void {
    this.#set?.delete(value)
  }

  values(): Iterable<T> {
    return this.#set ?? []
  }
}
