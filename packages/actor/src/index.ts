import './values/node-version.ts'

export type { Clock, Duration, Log, LogFields, LogLevel, Random, Timer } from '@homing/base'
export { CodedError, type ErrorDetails, type ErrorRecord, RemoteError } from '@homing/base'
export type { Arms, NameOfExport, Stuck, Travelling } from './contract/checks.ts'
export { type ActorSpecification, defineActor, defineCapability } from './contract/define.ts'
export type { Refused } from './contract/refused.ts'
export { systemView } from './contract/system-view.ts'
export { isThreadLoss } from './contract/terminated.ts'
export type { ArgsOf, Placement, Pools, ThreadName, ThreadPoolOptions } from './contract/thread-names.ts'
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
  type DedicatedThread,
  type MailboxOptions,
  type Provided,
  type ShutdownReport,
  type Signal,
  type SpawnOptions,
  type SpawnSettings,
  type StopOptions,
  type Supervision,
  type SystemStats,
  type SystemView,
  signal,
  type TellStatus,
  type Terminated,
  type TerminationReason,
  type ThreadFacilities,
  type ThreadPlacement,
  type ThreadStatus,
} from './contract/types.ts'
export type { FramesByLane, HandlerTimes, ThreadCounters } from './observe/counts.ts'
export { type FlightEvent, type FlightKind, textOfEvent } from './observe/flight.ts'
export type { SystemCounters } from './observe/observatory.ts'
export { createActorSystem } from './system/system.ts'
export type { DeadLetterCounts, DeadLetterReason } from './values/dead-letters.ts'
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
  SystemStoppedError,
  ThreadDownError,
  ThreadStartError,
  UnhandledMessageError,
  UnknownExportError,
  UnknownThreadError,
  UnserializableMessageError,
} from './values/errors.ts'
export type { Message, MessageKey, Reply, ReplyMark, TransferOptions } from './values/message.ts'
export type { ThreadEndReason } from './values/thread-end.ts'
