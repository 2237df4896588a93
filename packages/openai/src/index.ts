export { type ApiErrorOptions, apiError, errorBody, errorEvent } from './api-error.ts'
export { EmptyPromptError, InvalidRequestError, MalformedJsonError } from './errors.ts'
export { type ModelCard, modelsBody } from './models.ts'
export { HINT_HEADERS, type ReadOptions, ROUTER_MEMBERS, readRequest } from './request.ts'
export { DEPTH_MAX, MEMBERS_MAX, scanRequest } from './scan.ts'
export { type BodyEdit, cutMembers, editBody, spliceMember } from './splice.ts'
export { parseTokenIds } from './token-ids.ts'
export type {
  ApiError,
  ApiErrorKind,
  ByteRange,
  Member,
  PromptShape,
  RequestHeaders,
  RequestScan,
  RoutingHints,
  RoutingRequest,
} from './types.ts'
export { usageEdit } from './usage-edit.ts'
export { type UsageReport, UsageTap, type UsageTapOptions } from './usage-tap.ts'
