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
export type { PredictionStatus, RoutedBlocks } from './predictions.ts'
