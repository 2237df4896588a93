export type { SlotServiceReady } from './messages.ts'
export type { SlotReplicas, SlotServiceArgs } from './service-args.ts'
export { SLOT_ROUTES } from './slot-routes.ts'
export { slotService } from './slot-service.ts'
