export { COMPARED_CHAT, firstDifference } from './compared-chat.ts'
export type { DumpedLabel, DumpedLabels } from './dumped-labels.ts'
export { type NoKey, openDoor, readKey } from './engine-keys.ts'
export { type EngineSleep, readEngineSleep, sleepReason } from './engine-sleep.ts'
export { InvalidWorkerError, WorkerConflictError, WorkersFileError } from './errors.ts'
export { brokerEndpointOf, type EventBroker, subjectOf } from './event-broker.ts'
export type {
  Bootstrap,
  EngineFamily,
  EngineTokenized,
  Fleet,
  FleetMessage,
  FleetThresholds,
  Sourced,
  ValueSource,
  WorkerKeyRecord,
  WorkerModel,
  WorkerRecord,
  WorkerState,
} from './fleet.ts'
export { fleetEvents } from './fleet-events.ts'
export {
  DumpEndedError,
  type DumpSlice,
  dumpKey,
  dumpSlices,
  type IndexedBlock,
  KeyDumps,
  type KeyPart,
} from './key-dumps.ts'
export { type KeyLimits, NO_KEYS, withinLimits } from './key-limits.ts'
export type { Handover, WorkerRole } from './leg-names.ts'
export { loadingWorkers } from './loading-workers.ts'
export { type ModelNames, modelNames, NO_ALIASES, servedModel } from './model-names.ts'
export { namedRank } from './named-ranks.ts'
export { socketsOf } from './named-sockets.ts'
export { checkHealth, probeWorker } from './probe.ts'
export {
  RANKS_MAX,
  readEventSources,
  readMetrics,
  readModels,
  readServerInfo,
  readVersion,
} from './probe-answers.ts'
export type { EventSource, ProbedFact, ProbeOutcome, ReachedOutcome } from './probe-outcome.ts'
export { isOtherProcessStart } from './process-start.ts'
export { chooseWay, type RequestPlane, routeTo } from './request-way.ts'
export { dumpEvents, pooledEvents } from './router-events.ts'
export {
  blockSizeOfBoth,
  type EventPorts,
  eventFlags,
  eventSourceOf,
  factsOf,
  isOtherProcess,
  missingOf,
  namedSourceOf,
  outcomeAfter,
  owesEventSources,
  type WorkerDefaults,
  type WorkerFacts,
} from './worker-facts.ts'
export { placeOf } from './worker-place.ts'
export {
  canHandOver,
  handoverOf,
  type LegWorker,
  type PrefillState,
  prefillStates,
  roleOf,
  takesOver,
  takesWhole,
  topologyOf,
} from './worker-role.ts'
export { WorkerRoll } from './worker-roll.ts'
export { eventsHostOf, hostOf, type KeySource, type WorkerSpec } from './worker-spec.ts'
export { openWorker, parseWorkerSpec } from './worker-url.ts'
export {
  parseWorkersFile,
  readWorkersFile,
  WorkersFile,
  type WorkersFileChange,
  type WorkersFileLook,
} from './workers-file.ts'
