export { engineUsage } from './engine-usage.ts'
export { engineUsageArgsFromSettings } from './engine-usage-args.ts'
