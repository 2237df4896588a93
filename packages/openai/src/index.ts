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
  Usage,
} from './types.ts'
