export { OverlapScores } from './overlap-scores.ts'
export type {
  Copies,
  DumpEntry,
  HashPair,
  IndexOptions,
  IndexStats,
  ReaderStats,
  RemoveOutcome,
  StoreOutcome,
  WordAccess,
} from './types.ts'
