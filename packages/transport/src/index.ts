export { announcedBytes, faultOfAnswerHead } from './answer-head.ts'
export type { BrokerCounts } from './broker-counts.ts'
export { callbackFaults } from './callback.ts'
export { transportCapability } from './capability.ts'
export { CONNECTION_HEADERS, passedOn } from './connection-headers.ts'
export {
  brokerServer,
  faultOfEndpoint,
  isEndpointHost,
  parseBrokerEndpoint,
  parseEndpoint,
} from './endpoint.ts'
export {
  BodyTooLargeError,
  ClientGoneError,
  EndpointError,
  HttpCallError,
  type HttpCallFailure,
  ListenError,
  MalformedHttpError,
  NameError,
  NotInstalledError,
  StreamError,
} from './errors.ts'
export { faultOfExtProc } from './ext-proc/installed.ts'
export { giveUpBytes } from './give-up-bytes.ts'
export { REQUEST_WINDOW_BYTES } from './limits.ts'
export { MemoryNetwork } from './memory/network.ts'
export { resetStream } from './nats/reset-stream.ts'
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
export type {
  NamedSnapshot,
  Replaced,
  SnapshotLock,
  StoredSnapshot,
  StreamFill,
  StreamStore,
} from './stream-store.ts'
export { systemTransport } from './system/system-transport.ts'
export { TCP_ENDS, type TcpCounts } from './tcp-counts.ts'
export { TCP_LIMIT_RANGES, TCP_LIMITS, type TcpLimits } from './tcp-limits.ts'
export { expiryMsOf, faultOfIdentity, type IdentityFault } from './tls-identity.ts'
export type {
  AbsenceReason,
  BodyRoom,
  ClientGoneReason,
  Closable,
  ConnectionRefusal,
  Dealer,
  DialOptions,
  EventPath,
  ExtProcCounts,
  ExtProcListener,
  ExtProcOptions,
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
  NameAddress,
  NameResolver,
  NameTarget,
  Offered,
  OwnPresence,
  PeerTls,
  PickedExchange,
  PickedRequest,
  Publisher,
  RouterSocket,
  ServedExchange,
  ServeOptions,
  ServingListener,
  StreamOptions,
  SubscribeOptions,
  SubscriberHandler,
  Subscription,
  TlsIdentity,
  Transport,
} from './types.ts'
