export { engineUsage } from './engine-usage.ts'
export { type EngineUsageArgs, engineUsageArgsFromSettings } from './engine-usage-args.ts'
export type { EngineUsageMessage } from './messages.ts'
