export { indexer } from './indexer.ts'
export { createGuessCounts, indexerArgsFromSettings } from './indexer-args.ts'
export type {
  EventSourceMessage,
  IndexedBlock,
  IndexerMessage,
  KeyImage,
  ResyncCause,
  RoutedMessage,
  ShardMemoryMessage,
  ShardResetMessage,
  ShardStatus,
} from './messages.ts'
