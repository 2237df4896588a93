export {
  BadParameterError,
  MethodNotAllowedError,
  NoSuchRouteError,
  NotFoundError,
  ShuttingDownError,
  TooManyExchangesError,
} from './errors.ts'
export { type GatewayArgs, gateway } from './gateway.ts'
export type { GatewayAddress, GatewayMessage } from './messages.ts'
