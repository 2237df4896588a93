export type { DeadLetterCounts, DeadLetterReason } from './dead-letters.ts'
export { type ActorSpecification, defineActor, defineCapability } from './define.ts'
export {
  ActorFailedError,
  ActorTerminatedError,
  AskAbortedError,
  AskRefusedError,
  AskTimeoutError,
  MalformedMessageError,
  ModuleImportError,
  NestedSystemError,
  NotOnMainError,
  RestartBudgetError,
  StashFullError,
  SystemStoppedError,
  ThreadDownError,
  ThreadStartError,
  UnhandledMessageError,
  UnknownExportError,
  UnknownThreadError,
  UnserializableMessageError,
} from './errors.ts'
export { createKeyRouter } from './key-router.ts'
export type {
  KeyedMessage,
  KeyRouter,
  KeyRouterMember,
  KeyRouterOptions,
  RouterKey,
} from './key-router-types.ts'
export { LayoutError } from './layout/errors.ts'
export { type LayoutOf, layout, type MessageLayout } from './layout/layout.ts'
export type { MessageKey } from './mailbox.ts'
export type { FramesByLane, HandlerTimes, ThreadCounters } from './observe/counts.ts'
export { type FlightEvent, type FlightKind, textOfEvent } from './observe/flight.ts'
export type { SystemCounters } from './observe/observatory.ts'
export { systemView } from './observe/system-view.ts'
export { createActorSystem } from './system.ts'
export { isThreadLoss } from './terminated.ts'
export {
  type ActorContext,
  type ActorDefinition,
  type ActorRef,
  type ActorStatus,
  type ActorSystem,
  type ActorSystemOptions,
  type AskInput,
  type AskOptions,
  type AskResult,
  type Asks,
  type Backoff,
  type Behavior,
  type Capability,
  type Census,
  type MailboxOptions,
  type Message,
  type Placement,
  type Provided,
  type Reply,
  type ShutdownReport,
  type Signal,
  type SpawnOptions,
  type Strategy,
  type Supervision,
  type SystemStats,
  type SystemView,
  signal,
  type TellStatus,
  type Terminated,
  type TerminationReason,
  type ThreadFacilities,
  type ThreadPoolOptions,
  type ThreadStatus,
} from './types.ts'
