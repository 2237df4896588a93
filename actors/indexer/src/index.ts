export { indexer } from './indexer.ts'
export { createGuessCounts, indexerArgsFromSettings } from './indexer-args.ts'
export { type DumpMessage, dumpKey, type IndexedBlock, KeyDumps } from './key-dumps.ts'
export type {
  EventSourceMessage,
  IndexerMessage,
  KeyImage,
  ResyncCause,
  RoutedMessage,
  ShardMemoryMessage,
  ShardResetMessage,
  ShardStatus,
} from './messages.ts'
