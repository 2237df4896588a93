export { directory } from './directory.ts'
export type { DirectoryArgs } from './directory-args.ts'
export { directoryArgsFromSettings } from './directory-args.ts'
export type {
  AuditMessage,
  ComputedMessage,
  DirectoryMessage,
  DoorsMessage,
  DrainedMessage,
  FleetReport,
  KeeperMessage,
  Kept,
  PromptsMessage,
  WorkerDiagnosis,
  WorkerDoor,
} from './messages.ts'
export type { SnapshotCounts } from './snapshot-pass.ts'
export type { DiscoveryArgs } from './worker-source.ts'
export type { GivenWorkersFile } from './workers-file-watch.ts'
