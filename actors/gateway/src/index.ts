export { gateway } from './gateway.ts'
export { type GatewayArgs, gatewayArgsFromSettings } from './gateway-args.ts'
export { OWN_ROUTES } from './own-routes.ts'
export { ENGINE_ROUTES, relayedNames } from './relay-routes.ts'
