export { EventLabels, type PooledBlock } from './event-labels.ts'
export { indexer } from './indexer.ts'
export { createGuessCounts, indexerArgsFromSettings, labelShapeOf } from './indexer-args.ts'
export { LayerSlots } from './layer-slots.ts'
export type {
  Churn,
  DumpMessage,
  EventSourceMessage,
  IndexerMessage,
  KeyImage,
  ResyncCause,
  RoutedMessage,
  ShardMemoryMessage,
  ShardResetMessage,
  ShardStatus,
} from './messages.ts'
