export type { GuessStatus, RoutedBlocks } from './guesses.ts'
export { indexer } from './indexer.ts'
export { type IndexerArgs, indexerArgsFromSettings } from './indexer-args.ts'
export type {
  EventSourceMessage,
  IncompleteMessage,
  IndexedBlock,
  IndexerMessage,
  KeyImage,
  LearnedMessage,
  ResyncCause,
  ResyncMessage,
  RoutedMessage,
  ShardMemoryMessage,
  ShardMessage,
  ShardResetMessage,
  ShardStatus,
  SkipReason,
} from './messages.ts'
