export type {
  DirectoryMessage,
  EngineFamily,
  EventSource,
  Fleet,
  FleetMessage,
  FleetReport,
  ModelCard,
  ProbeOutcome,
  Sourced,
  Trust,
  ValueSource,
  WorkerKeyRecord,
  WorkerRecord,
  WorkerSpec,
  WorkerState,
} from './messages.ts'
export type { SourceStatus } from './source-status.ts'
