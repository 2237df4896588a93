export type { IndexedBlock, IndexerMessage, ResyncMessage, ShardStatus } from './messages.ts'
