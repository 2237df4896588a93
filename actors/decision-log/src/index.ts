export { decisionLog } from './decision-log.ts'
export { type DecisionLogArgs, decisionLogArgsFromSettings } from './decision-log-args.ts'
export { DecisionLogFileError } from './errors.ts'
export { logFiles, prepareDecisionLog } from './log-files.ts'
export type {
  DecisionLogMessage,
  DecisionLogStatus,
  SettledMessage,
  SettledRequest,
} from './messages.ts'
