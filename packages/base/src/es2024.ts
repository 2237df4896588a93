/**
 * What Node 20 lacks of the language that this code is written in (ES2024), as the standard has it. The entry
 * of this package imports it first, so whatever depends on @homing/base may use it. Later Nodes keep their
 * own.
 */

function lacking(owner: object, name: string, value: unknown): void {
  if (!(name in owner)) Object.defineProperty(owner, name, { value, writable: true, configurable: true })
}

lacking(Promise, 'withResolvers', function withResolvers<T>(): PromiseWithResolvers<T> {
  let resolve: PromiseWithResolvers<T>['resolve']
  let reject: PromiseWithResolvers<T>['reject']
  const promise = new Promise<T>((onValue, onReason) => {
    resolve = onValue
    reject = onReason
  })
  return { promise, resolve: resolve!, reject: reject! }
})

lacking(Map, 'groupBy', function groupBy<T, K>(items: Iterable<T>, keyOf: (item: T, index: number) => K): Map<
  K,
  T[]
> {
  const groups = new Map<K, T[]>()
  let index = 0
  for (const item of items) {
    const key = keyOf(item, index++)
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [item])
    else group.push(item)
  }
  return groups
})

lacking(
  ArrayBuffer.prototype,
  'transfer',
  function transfer(this: ArrayBuffer, byteCount = this.byteLength): ArrayBuffer {
    const moved = structuredClone(this, { transfer: [this] })
    if (byteCount === moved.byteLength) return moved
    const other = new ArrayBuffer(byteCount)
    new Uint8Array(other).set(new Uint8Array(moved, 0, Math.min(byteCount, moved.byteLength)))
    return other
  },
)

if (!('detached' in ArrayBuffer.prototype))
  Object.defineProperty(ArrayBuffer.prototype, 'detached', {
    configurable: true,
    get(this: ArrayBuffer): boolean {
      try {
        new Uint8Array(this)
        return false
      } catch {
        return true
      }
    },
  })
