export {
  BadParameterError,
  MethodNotAllowedError,
  NoSuchRouteError,
  NotFoundError,
  ShuttingDownError,
  TooManyExchangesError,
} from './errors.ts'
export { gateway } from './gateway.ts'
export type { GatewayArgs } from './gateway-args.ts'
export type { GatewayAddress, GatewayMessage } from './messages.ts'
