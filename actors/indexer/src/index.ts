export type { GuessStatus, RoutedBlocks } from './guesses.ts'
export { type IndexerArgs, indexer } from './indexer.ts'
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
