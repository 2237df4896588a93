export { announcedBytes, faultOfAnswerHead } from './answer-head.ts'
export type { BrokerCounts } from './broker-counts.ts'
export { callbackFaults } from './callback.ts'
export { transportCapability } from './capability.ts'
export type { Closable } from './closable.ts'
export { passedOn } from './connection-headers.ts'
export {
  brokerServer,
  faultOfEndpoint,
  isEndpointHost,
  parseBrokerEndpoint,
  parseEndpoint,
  presenceEndpoint,
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
export type {
  ExtProcCounts,
  ExtProcListener,
  ExtProcOptions,
  PickedExchange,
  PickedRequest,
} from './ext-proc-types.ts'
export { giveUpBytes } from './give-up-bytes.ts'
export type {
  BodyRoom,
  ClientGoneReason,
  ConnectionRefusal,
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
  PeerTls,
  ServedExchange,
  ServeOptions,
  ServingListener,
  TlsIdentity,
} from './http-types.ts'
export { REQUEST_WINDOW_BYTES } from './limits.ts'
export { MemoryNetwork } from './memory/network.ts'
export type {
  Dealer,
  DialOptions,
  EventPath,
  Frames,
  MessageTransport,
  Offered,
  Publisher,
  RouterSocket,
  StreamOptions,
  SubscribeOptions,
  SubscriberHandler,
  Subscription,
} from './message-types.ts'
export type { NameAddress, NameResolver, NameTarget } from './name-types.ts'
export { resetStream } from './nats/reset-stream.ts'
export { type BrokerAccess, setBrokerAccess } from './nats/system-broker.ts'
export type { AbsenceReason, OwnPresence } from './presence-types.ts'
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
export { type AddressFamily, ownAddressTowards } from './system/own-address.ts'
export { systemTransport } from './system/system-transport.ts'
export { TCP_ENDS, type TcpCounts } from './tcp-counts.ts'
export { TCP_LIMIT_RANGES, TCP_LIMITS, type TcpLimits } from './tcp-limits.ts'
export { expiryMsOf, faultOfIdentity, type IdentityFault } from './tls-identity.ts'
export type { Transport } from './transport.ts'
