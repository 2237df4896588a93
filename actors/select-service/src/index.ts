export type { SelectServiceReady } from './messages.ts'
export { SELECT_ROUTES } from './select-routes.ts'
export { selectService } from './select-service.ts'
export type { SelectServiceArgs } from './service-args.ts'
