export { createLog, type Log, type LogFields, type LogLevel, silentLog } from './log.ts'
