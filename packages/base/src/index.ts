export { type Clock, type Duration, durationMs, type Random, type Timer } from './clock.ts'
export {
  CodedError,
  type ErrorDetails,
  type ErrorRecord,
  fromErrorRecord,
  RemoteError,
  toErrorRecord,
  UNEXPECTED_CODE,
} from './coded-error.ts'
export {
  DiskLineFile,
  type DiskLineFileOptions,
  diskMoves,
  type LineFile,
  type LineFiles,
  StreamLineFile,
} from './line-files.ts'
export { LineWriter, type LineWriterOptions, type LineWriterStatus } from './line-writer.ts'
export { isLocalFault } from './local-faults.ts'
export {
  createLog,
  LOG_LEVELS,
  type Log,
  type LogFormat,
  type LogLevel,
  silentLog,
} from './log.ts'
export type { LogFields } from './log-text.ts'
export { JSON_DEPTH_MAX, parseJson } from './parse-json.ts'
export { type LogLine, type RecordingLog, recordingLog } from './recording-log.ts'
export { seededRandom } from './seeded-random.ts'
export { shownValue } from './shown-value.ts'
export { SimulatedClock } from './simulated-clock.ts'
export { systemClock, systemRandom } from './system-clock.ts'
