export { type DecisionLog, isDecisionLog, LOG_BLOCKS_MAX, readDecisionLog } from './decision-log-file.ts'
export {
  BadGeneratorError,
  GENERATOR_NAMES,
  type GeneratorName,
  type GeneratorSpec,
  generatedLoop,
  generatedRequests,
  parseGenerator,
} from './generators/generator.ts'
export type { UserLoop } from './generators/multi-turn.ts'
export {
  beginsAsDecisionLog,
  DECISION_LOG_VERSION,
  type DecisionLogLine,
  headerLine,
  KNOWLEDGE,
  type LoggedOutcome,
  type LoggedRequest,
  type LoggedSelection,
  type LoggedWorker,
  type LogHeader,
  loggedSelection,
  lossLine,
  OUTCOMES,
  type PromptKnowledge,
  readLogLine,
  requestLine,
  type SelectionInForce,
} from './log-line.ts'
export { loggedWorkers, type WorkerOfFleet } from './logged-workers.ts'
export {
  type NumberedLine,
  openTrace,
  readLines,
  readTrace,
  TRACE_LINE_MAX,
  type TraceFileOptions,
  UnreadableTraceError,
} from './trace-file.ts'
export { MalformedTraceError, parseTraceLine, TRACE_TOKENS_MAX, traceText } from './trace-line.ts'
export { TRACE_BLOCK_TOKENS, type TraceRequest, type TraceSource } from './trace-request.ts'
export { scanTrace, type TraceScan, type Transformations, transformTrace } from './transformations.ts'
