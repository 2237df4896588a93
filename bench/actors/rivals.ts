import type { Measures } from '../harness.ts'
export const rivals: Record<
  string,
  { version: () => string | undefined; rows: Record<string, () => Promise<Measures>> }
> = {}
