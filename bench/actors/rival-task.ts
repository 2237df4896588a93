/** The task that a pool runs. */

export function add({ a }: { readonly a: number }): { readonly answer: number } {
  return { answer: a + 1 }
}
