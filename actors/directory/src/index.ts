export type { CheckpointStatus, SourceStatus, Trust } from '@homing/listener'
export { type DirectoryArgs, directory } from './directory.ts'
export { InvalidWorkerError, NoWorkerSlotError } from './errors.ts'
export type {
  AuditMessage,
  ComputedMessage,
  DirectoryMessage,
  EngineFamily,
  EventSource,
  Fleet,
  FleetMessage,
  FleetReport,
  ModelCard,
  ProbeOutcome,
  Sourced,
  ValueSource,
  WorkerKeyRecord,
  WorkerRecord,
  WorkerSpec,
  WorkerState,
} from './messages.ts'
export { type CacheFacts, missingOf } from './worker-facts.ts'
export { parseWorkerSpec } from './worker-spec.ts'
