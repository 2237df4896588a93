export { isBodyFile, type LoggedBody, openBodies } from './body-file.ts'
export { type DecisionLog, isDecisionLog, readDecisionLog } from './decision-log-file.ts'
export { poissonGapMs } from './generators/draws.ts'
export {
  BadGeneratorError,
  GENERATOR_NAMES,
  type GeneratorSpec,
  generatedLoop,
  generatedRequests,
  parseGenerator,
} from './generators/generator.ts'
export {
  beginsAsDecisionLog,
  type DecisionLogLine,
  headerLine,
  KNOWLEDGE,
  type LoggedRequest,
  type LoggedSelection,
  type LoggedWorker,
  type LogHeader,
  loggedSelection,
  lossLine,
  OUTCOMES,
  readLogLine,
  requestLine,
  type SelectionInForce,
} from './log-line.ts'
export { loggedWorkers } from './logged-workers.ts'
export { openTrace, readTrace, UnreadableTraceError } from './trace-file.ts'
export { MalformedTraceError, traceText } from './trace-line.ts'
export { TRACE_BLOCK_TOKENS, type TraceRequest, type TraceSource } from './trace-request.ts'
export { scanTrace, transformTrace } from './transformations.ts'
