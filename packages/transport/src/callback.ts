/**
 * Calls an owner's callback. If it throws, that is a bug of the owner: the error is thrown again from a
 * microtask, where it reaches the thread's handler of uncaught errors. The socket stays usable.
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
