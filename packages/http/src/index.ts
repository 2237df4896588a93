export { type AccessLine, AccessLog, type AccessLogOptions, prepareAccessLog } from './access-log.ts'
export {
  ADMIN_ROLES,
  type AdminKey,
  AdminKeys,
  type AdminRole,
  BadAdminKeysError,
  bearerOf,
  parseAdminKeys,
} from './admin-keys.ts'
export {
  errorAnswer,
  errorHeaders,
  type HttpAnswer,
  jsonAnswer,
  rowsAnswer,
  sendAnswer,
  textAnswer,
} from './answers.ts'
export { Bodies, type BodyHold, type BodyShare } from './bodies.ts'
export { BodyArena, type BodyLoan, LENT_BYTES_MIN } from './body-arena.ts'
export { type BodyFault, BodyFields, type BodyRefusal } from './body-fields.ts'
export { sendBooked } from './booked-answers.ts'
export { assertNoStrangePage, type Caller, HostNames, isFromHere } from './callers.ts'
export { encodingOf } from './content-encoding.ts'
export { CostlyViews, Slices } from './costly-views.ts'
export { apiErrorOf } from './error-kinds.ts'
export {
  BadParameterError,
  DumpsBusyError,
  EncodingRatioError,
  MalformedEncodingError,
  MethodNotAllowedError,
  NoSuchRouteError,
  NotFoundError,
  RefusedError,
  StrangePageError,
  UnsupportedEncodingError,
  ViewsBusyError,
} from './errors.ts'
export {
  EventStreams,
  mayStillRead,
  type Pulled,
  type StreamCounts,
  type StreamEvent,
  sendOrStream,
} from './event-streams.ts'
export { FollowedFiles, readFollowedFiles } from './followed-files.ts'
export { FrontDoor, type HttpAddress } from './front-door.ts'
export {
  ALONE,
  type CommonCount,
  type CommonRow,
  commonCount,
  commonMemory,
} from './gateway-counts.ts'
export { COMMON_STATUSES, sendError, sendJson } from './json-answers.ts'
export {
  type JsonHandler,
  type JsonRoute,
  JsonService,
  type JsonServiceArgs,
  type JsonServiceParts,
  jsonRouteTable,
  type NamedRoute,
  type RequestNote,
  type RouteNameOf,
} from './json-service.ts'
export { LentBodies } from './lent-bodies.ts'
export { readMoeQuery } from './moe-query-field.ts'
export { OpenRequests, type OpenRequestsOptions, type Refusal, type RouteKind } from './open-requests.ts'
export { fetchPieces, type Piece, sendPieces } from './pieces.ts'
export { limitOf, queryOf, wantsText } from './query.ts'
export { type Route, RouteTable, refuseRoute, takesMethod } from './route-table.ts'
export {
  BadBodyError,
  BodyTypeError,
  bodyFields,
  MistypedBodyError,
  ServiceActorLostError,
  ServiceBusyError,
  ServiceConflictError,
  ServiceFullError,
  ServiceNotFoundError,
  ServiceStoppingError,
  statusOfServiceError,
} from './service-errors.ts'
export { serviceHandlers } from './service-handlers.ts'
export { CHILD_SUPERVISION, type Service, type ServiceMessage, serviceArms } from './service-life.ts'
export { followTls, readTlsFiles, TLS_FILE_BYTES_MAX, type TlsArgs, tlsExpirySeconds } from './tls-files.ts'
export { Turns } from './turns.ts'
export { sendView, type ViewPlace, ViewRoom } from './view-room.ts'
