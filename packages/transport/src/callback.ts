/**
 * Calls an owner's callback. What it throws is thrown again from a microtask: it is a bug of the owner and
 * reaches the thread's handler of uncaught errors, and the socket it happened on stays usable.
 */
export function callOwner<A extends readonly unknown[]>(callback: (...args: A) => void, ...args: A): void {
  try {
    callback(...args)
  } catch (error) {
    queueMicrotask(() => {
      throw error
    })
  }
}
