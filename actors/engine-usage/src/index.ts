export { type EngineUsageArgs, engineUsage } from './engine-usage.ts'
export type { EngineUsageMessage } from './messages.ts'
