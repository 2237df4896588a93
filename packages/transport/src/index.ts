export { announcedBytes, faultOfAnswerHead } from './answer-head.ts'
export type { BrokerCounts } from './broker-counts.ts'
export { transportCapability } from './capability.ts'
export {
  type BrokerEndpoint,
  brokerServer,
  isBrokerEndpoint,
  NATS_PORT,
  parseBrokerEndpoint,
  parseEndpoint,
} from './endpoint.ts'
export {
  BodyTimeoutError,
  BodyTooLargeError,
  ClientGoneError,
  EndpointError,
  ExpectationError,
  HeadersTimeoutError,
  HeadersTooLargeError,
  HttpCallError,
  type HttpCallFailure,
  HttpRequestError,
  ListenError,
  MalformedHttpError,
  SocketHostError,
} from './errors.ts'
export { giveUpBytes } from './give-up-bytes.ts'
export { REQUEST_WINDOW_BYTES } from './limits.ts'
export type { HttpFate, MemoryFaults, MessageFate } from './memory/conditions.ts'
export { MemoryNetwork, type MemoryNetworkOptions } from './memory/network.ts'
export { type BrokerAccess, setBrokerAccess } from './nats/system-broker.ts'
export {
  clashText,
  hostName,
  isOfThisMachine,
  isSameSocket,
  type NamedSocket,
  SocketClaims,
  type SocketClash,
  type SocketUse,
} from './socket-claims.ts'
export { type SystemTransportOptions, systemTransport } from './system/system-transport.ts'
export type {
  AbsenceReason,
  BindOptions,
  BodyRoom,
  ClientGoneReason,
  Closable,
  Dealer,
  Frames,
  HttpAccess,
  HttpCall,
  HttpEnd,
  HttpErrorAnswer,
  HttpExchange,
  HttpFailure,
  HttpHeaders,
  HttpListener,
  HttpReply,
  HttpRequest,
  HttpResponseHandler,
  HttpRoute,
  HttpTransport,
  ListenOptions,
  MessageTransport,
  OwnPresence,
  PresenceHandler,
  PresenceOptions,
  PresentOne,
  Publisher,
  RouterSocket,
  ServedExchange,
  ServeOptions,
  ServingListener,
  SubscriberHandler,
  TlsIdentity,
  Transport,
} from './types.ts'
