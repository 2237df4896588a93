export { isJsonAnswer, isStreamAnswer } from './answer-type.ts'
export { answerEvent, apiError, type ErrorForm, errorBody, errorEvent } from './api-error.ts'
export { textAfterMark } from './byte-order-mark.ts'
export {
  type AnswerLimits,
  answerLimits,
  continuedRequest,
  endsInStop,
  mayHoldText,
  textRequest,
  type UnfitRequest,
  unfitRequest,
  wantsUsage,
} from './continued-request.ts'
export { ContinuedStream, engineErrorOf, errorAnswerOf, streamEnd } from './continued-stream.ts'
export {
  type Delivered,
  type DeliveredForm,
  DeliveredStream,
  eventsOf,
  payloadOf,
  type TakeMemory,
  type UnfitStream,
} from './delivered-stream.ts'
export { editMembers, type MemberChanges } from './edit-members.ts'
export { EmptyPromptError, InvalidRequestError, MalformedJsonError } from './errors.ts'
export type { AlikeEvents } from './event-template.ts'
export { beforeGivenUp, isGivenUp, isGivenUpAnswer } from './given-up.ts'
export { type ModelCard, modelsBody } from './models.ts'
export { type FormModel, isForm, readFormModel } from './multipart.ts'
export { estimatePrompt, IMAGE_TOKENS, mediaTokensOf, type PromptEstimate } from './prompt-estimate.ts'
export {
  type ReadOptions,
  type RelayedRequest,
  ROUTER_MEMBERS,
  readModel,
  readRelayedRequest,
  readRequest,
} from './request.ts'
export { MEMBERS_MAX, scanPoint, scanRequest } from './scan.ts'
export { type BodyEdit, cutMembers, editBody, spliceMember } from './splice.ts'
export { canAsk, type StreamForm, StreamFormLearner } from './stream-form.ts'
export { parseTokenIds } from './token-ids.ts'
export { type StopResult, StopStrings } from './tokens/stop-strings.ts'
export { TokenAnswer, type TokenEnd, type TokenPiece } from './tokens/token-answer.ts'
export { readTokenWishes, type TokenWishes } from './tokens/token-wishes.ts'
export type {
  ApiError,
  ApiErrorKind,
  CacheUse,
  MoeQueryHint,
  PriorityHints,
  RequestFields,
  RequestHeaders,
  RequestScan,
  RoutingConstraints,
  RoutingOverride,
  ScanPoint,
  TrackingHints,
} from './types.ts'
export { usageEdit } from './usage-edit.ts'
export { RESPONSE_ID_CHARACTERS_MAX, type UsageReport, UsageTap } from './usage-tap.ts'
