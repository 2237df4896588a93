export { createLog, type Log, type LogFields, type LogLevel, silentLog } from './log.ts'
export { type LogLine, type RecordingLog, recordingLog } from './recording-log.ts'
