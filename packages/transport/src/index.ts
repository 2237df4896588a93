export { transportCapability } from './capability.ts'
export {
  BodyTimeoutError,
  BodyTooLargeError,
  ClientGoneError,
  EndpointError,
  HttpCallError,
  type HttpCallFailure,
  ListenError,
  SocketHostError,
} from './errors.ts'
export {
  type HttpFate,
  type MemoryFaults,
  MemoryNetwork,
  type MemoryNetworkOptions,
  type MessageFate,
} from './memory/network.ts'
export { type SystemTransportOptions, systemTransport } from './system/system-transport.ts'
export type {
  BindOptions,
  BodyRoom,
  ClientGoneReason,
  Closable,
  Dealer,
  Frames,
  HttpCall,
  HttpExchange,
  HttpFailure,
  HttpHeaders,
  HttpListener,
  HttpReply,
  HttpRequest,
  HttpResponseHandler,
  HttpTransport,
  ListenOptions,
  MessageTransport,
  Publisher,
  Router,
  SubscriberHandler,
  Transport,
} from './types.ts'
