import './es2024.ts'

export { readBoundedFile } from './bounded-file.ts'
export { type Clock, type Duration, durationMs, type Random, type Timer } from './clock.ts'
export {
  CodedError,
  type CodedErrorOptions,
  type ErrorDetails,
  type ErrorRecord,
  fromErrorRecord,
  LIST_CHARACTERS_MAX,
  MESSAGE_CHARACTERS_MAX,
  RemoteError,
  toErrorRecord,
  UNEXPECTED_CODE,
} from './coded-error.ts'
export { EventData } from './event-data.ts'
export {
  faultList,
  KEY_NAME,
  KEYS_FILE_BYTES_MAX,
  type KeyEntriesForm,
  type KeyEntry,
  type KeyMembers,
  readKeyEntries,
} from './key-entries.ts'
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
export { looksLikeKey, NOT_SHOWN, openName, openText, openUrl } from './open-text.ts'
export { JSON_DEPTH_MAX, parseJson } from './parse-json.ts'
export { readYaml, YAML_BYTES_MAX } from './read-yaml.ts'
export { type LogLine, type RecordingLog, recordingLog } from './recording-log.ts'
export { seededRandom } from './seeded-random.ts'
export { shownJson } from './shown-json.ts'
export { isShown, SHOWN_CHARACTERS_MAX, shownText } from './shown-text.ts'
export { shownValue } from './shown-value.ts'
export { SimulatedClock } from './simulated-clock.ts'
export { choicesOf, systemClock, systemRandom } from './system-clock.ts'
export { iso, milliseconds, significant } from './view-numbers.ts'
export { replaceFile } from './whole-file.ts'
export { parseExactJson, parseWideJson, tryBits64, tryUnsigned64, wideJson } from './wide-json.ts'
