export { type ComparedFigure, type ComparedVerdict, compareFigure, compareSides } from './comparison.ts'
export { type ConversationOptions, conversationSource } from './conversations.ts'
export { FIGURES, type Figure } from './figures.ts'
export {
  faultsOfResult,
  Load,
  type LoadPlan,
  type LoadResult,
  type LoadSide,
  type SideResult,
} from './load-plan.ts'
export type { Endpoint, LoadRequest, RequestSource } from './load-request.ts'
export { LoadRun, type LoadRunOptions, type Pace } from './load-run.ts'
export type { Outcome } from './outcome.ts'
export type { LoadAbout } from './report/about.ts'
export { renderLoadHtml } from './report/html.ts'
export { renderLoadJson } from './report/json.ts'
export { renderLoadText } from './report/text.ts'
export { type Send, senderTo, type Target } from './sender.ts'
export { type LoadFigures, Tally } from './tally.ts'
export { blockTokensOf, firstModel, originOf, TargetError } from './target.ts'
export { type TraceSourceOptions, traceSource } from './trace-source.ts'
export { WORDS } from './words.ts'
