export { type CheckpointStore, checkpointFiles, prepareCheckpointDirectory } from './checkpoint-files.ts'
export { type CheckpointOptions, checkpointOptions } from './checkpoints.ts'
export { CheckpointDirectoryError, UnusableCheckpointError } from './errors.ts'
export { LISTENER_LIMITS } from './limits.ts'
export { type ListenerArgs, listener } from './listener.ts'
export {
  type Listened,
  type ListenedSource,
  ListenerLives,
  type ReleaseMessage,
  unheard,
} from './listener-lives.ts'
export type {
  CheckpointStatus,
  KeySnapshot,
  ListenerMessage,
  SaveOutcome,
  SnapshotAnswer,
  SourceMessage,
  SourceStatus,
  SourceTrust,
  StoredSnapshotMessage,
} from './messages.ts'
export { type SaveReport, saveCheckpoints, savingMs } from './save-checkpoints.ts'
