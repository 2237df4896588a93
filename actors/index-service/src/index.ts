export {
  AccessLogError,
  BadDumpError,
  BadRequestError,
  NotRegisteredError,
  RegistrationConflictError,
  RegistrationsFullError,
  ServiceActorLostError,
  ServiceBusyError,
  ServiceStoppingError,
  UnknownRouteError,
  WrongMethodError,
} from './errors.ts'
export { indexService } from './index-service.ts'
export type { IndexServiceMessage, ServiceReady } from './messages.ts'
export { faultOfEndpoint, faultOfPeer, peerUrl, type Registration } from './requests.ts'
export type { IndexServiceArgs } from './service-args.ts'
