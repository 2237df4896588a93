export {
  BlockManager,
  type BlockManagerOptions,
  type BlockRemoved,
  type BlockSequence,
  type BlocksCleared,
  type BlocksStored,
  type CachedBlock,
  type CacheEvent,
  type CacheNamespace,
} from './block-manager.ts'
export { ANSWER_FORMS, type AnswerForm } from './completion-answer.ts'
export { RefusedRequest } from './completion-request.ts'
export {
  Engine,
  type EngineDescription,
  type EngineOptions,
  type EngineRankState,
  type EngineRequestRecord,
  type EngineState,
  type RankEndpoints,
} from './engine.ts'
export { type EngineMessage, engine } from './engine-actor.ts'
export {
  type EngineFaults,
  type HangScope,
  NO_ENGINE_FAULTS,
  type RequestFault,
  type ToldSources,
} from './engine-faults.ts'
export { type HashWords, hexOfHash, promptHashes } from './engine-hash.ts'
export {
  type EmittedToken,
  EngineModel,
  type EngineModelOptions,
  type ModelCounts,
  type ModelRequest,
  type StepOutcome,
} from './engine-model.ts'
export {
  DEFAULT_ENGINE_SETTINGS,
  ENGINE_OPTIONS,
  type EngineSettings,
  engineSettings,
  InvalidEngineSettingsError,
  type ResolvedEngineSettings,
} from './engine-settings.ts'
export {
  byteTokenizer,
  type EngineTokenizer,
  outputVocabulary,
} from './engine-tokenizer.ts'
export { type EventManners, PLAIN_MANNERS } from './event-manners.ts'
export {
  EVENT_FORMS,
  type EventFaults,
  type EventForm,
  EventPublisher,
  type EventPublisherOptions,
  NO_EVENT_FAULTS,
} from './event-publisher.ts'
export { loadEngineTokenizer } from './load-engine-tokenizer.ts'
export { DEFAULT_VOCABULARY, expectedOutput, naturalOutputTokens, OutputSource } from './output.ts'
export {
  PROFILE_NAMES,
  type ProfileName,
  type StepWork,
  type TimingProfile,
  timingProfile,
} from './timing-profile.ts'
export {
  DEFAULT_TOKEN_RANGE,
  makeTrace,
  type Session,
  type SessionOptions,
  type SessionTurn,
  sessionPrompt,
  sessions,
  type TokenRange,
  type TraceOptions,
  traceTokens,
} from './workloads.ts'
