export type { CheckpointStatus, SourceStatus } from '@homing/actors/listener'
export type { Trust } from '@homing/index'
export {
  type DiagnoseOptions,
  type DiagnosisTokenizer,
  diagnoseWorker,
  diagnoseWorkers,
} from './diagnosis/diagnose.ts'
export type {
  Diagnosis,
  DiagnosisStep,
  Door,
  Finding,
  FindingLevel,
  FindingSubject,
  Verdict,
} from './diagnosis/diagnosis.ts'
export type { ModelTwin } from './diagnosis/evidence.ts'
export { type DirectoryArgs, directory } from './directory.ts'
export { directoryArgsFromSettings } from './directory-args.ts'
export { openDoor, readKey } from './engine-keys.ts'
export { InvalidWorkerError, NoWorkerSlotError, WorkerConflictError, WorkersFileError } from './errors.ts'
export { brokerEndpointOf, type EventBroker, faultOfSubject, subjectOf } from './event-broker.ts'
export type {
  AuditMessage,
  ComputedMessage,
  DirectoryMessage,
  DrainedMessage,
  EngineFamily,
  EventSource,
  Fleet,
  FleetMessage,
  FleetReport,
  FleetThresholds,
  KeeperMessage,
  Kept,
  KeySource,
  ProbeOutcome,
  Sourced,
  ValueSource,
  WorkerDiagnosis,
  WorkerKeyRecord,
  WorkerModel,
  WorkerRecord,
  WorkerSpec,
  WorkerState,
} from './messages.ts'
export { givenSockets } from './named-sockets.ts'
export type { RequestBroker } from './request-way.ts'
export { type CacheFacts, missingOf, type ReachedOutcome } from './worker-facts.ts'
export { WorkerRoll } from './worker-roll.ts'
export { parseWorkerSpec } from './worker-spec.ts'
export { parseWorkersFile, readWorkersFile } from './workers-file.ts'
export type { GivenWorkersFile } from './workers-file-watch.ts'
