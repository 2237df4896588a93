export { type IndexerArgs, indexer } from './indexer.ts'
export type {
  EventSourceMessage,
  IndexedBlock,
  IndexerMessage,
  LearnedMessage,
  ResyncCause,
  ResyncMessage,
  ShardMemoryMessage,
  ShardResetMessage,
  ShardStatus,
  SkipReason,
} from './messages.ts'
