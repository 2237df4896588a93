export { type AccessLine, AccessLog, type AccessLogOptions, prepareAccessLog } from './access-log.ts'
export { errorAnswer, errorHeaders, type HttpAnswer, jsonAnswer, sendAnswer, textAnswer } from './answers.ts'
export { Bodies, type BodyHold, type BodyShare } from './bodies.ts'
export { encodingOf } from './content-encoding.ts'
export { apiErrorOf } from './error-kinds.ts'
export {
  BadParameterError,
  MalformedEncodingError,
  MethodNotAllowedError,
  NoSuchRouteError,
  NotFoundError,
  RefusedError,
  UnsupportedEncodingError,
} from './errors.ts'
export {
  EventStreams,
  type Pulled,
  type StreamCounts,
  type StreamEvent,
  sendOrStream,
} from './event-streams.ts'
export { FrontDoor, type HttpAddress } from './front-door.ts'
export { limitOf, queryOf, wantsText } from './query.ts'
export { type Route, RouteTable, refuseRoute, takesMethod } from './route-table.ts'
