export { createLog, LOG_LEVELS, type Log, type LogFields, type LogLevel, silentLog } from './log.ts'
