export {
  BlockManager,
  type BlockRemoved,
  type BlocksStored,
  type CachedBlock,
  type CacheEvent,
} from './block-manager.ts'
export { ANSWER_FORMS } from './completion-answer.ts'
export { Engine, type EngineDescription, type EngineState } from './engine.ts'
export { type EngineMessage, engine } from './engine-actor.ts'
export { type HashWords, hexOfHash, promptHashes } from './engine-hash.ts'
export { EngineModel } from './engine-model.ts'
export {
  DEFAULT_ENGINE_SETTINGS,
  ENGINE_OPTIONS,
  type EngineSettings,
  engineSettings,
} from './engine-settings.ts'
export { byteTokenizer, type EngineTokenizer, outputVocabulary } from './engine-tokenizer.ts'
export { type EventManners, PLAIN_MANNERS } from './event-manners.ts'
export { type EventFaults, type EventForm, EventPublisher, NO_EVENT_FAULTS } from './event-publisher.ts'
export type { EngineRole } from './handover-settings.ts'
export { loadEngineTokenizer } from './load-engine-tokenizer.ts'
export { DEFAULT_VOCABULARY, expectedOutput } from './output.ts'
export { PROFILE_NAMES, type ProfileName, type StepWork, timingProfile } from './timing-profile.ts'
export {
  DEFAULT_TOKEN_RANGE,
  makeTrace,
  type Session,
  type SessionOptions,
  type SessionTurn,
  sessionPrompt,
  sessions,
  traceTokens,
} from './workloads.ts'
