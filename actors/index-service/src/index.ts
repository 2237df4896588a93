export {
  BadDumpError,
  BadRequestError,
  NotRegisteredError,
  RegistrationConflictError,
  RegistrationsFullError,
  ServiceActorLostError,
  ServiceBusyError,
  ServiceStoppingError,
} from './errors.ts'
export { indexService } from './index-service.ts'
export type { IndexServiceMessage, ServiceReady } from './messages.ts'
export { serviceProcessMetrics } from './process-metrics.ts'
export { faultOfEndpoint, faultOfPeer, peerUrl, RANK_MAX, type Registration } from './requests.ts'
export type { IndexServiceArgs } from './service-args.ts'
export { type NamedServiceRoute, SERVICE_ROUTES } from './service-routes.ts'
