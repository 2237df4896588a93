export { QUEUE_ORDERS, type QueueOrder } from './orders.ts'
export { Overload } from './overload.ts'
export { BadPolicyClassesError, type PolicyFile, parsePolicyClasses } from './policy-class-file.ts'
export {
  type PolicyClass,
  type PolicyProfile,
  policyClassOf,
  singleClassProfile,
  type UncachedBucket,
} from './policy-classes.ts'
export { PriorityQueue, type PriorityQueueOptions } from './priority-queue.ts'
export { QueueRoom, type QueueRoomOptions } from './queue-room.ts'
export { AGING_MS_DEFAULT, QUEUE_LOOK_MS, WAIT_MS_MAX_DEFAULT } from './queue-times.ts'
export {
  ModelRules,
  mustWait,
  orderOf,
  type PrefillLoad,
  type QueueRules,
  type RoomRule,
  type ThresholdState,
  type Thresholds,
  thresholdOf,
  thresholdState,
  type WorkerRoom,
} from './room-rules.ts'
export { OTHER_TENANTS } from './tenants.ts'
export type {
  Admission,
  ClassLimitKind,
  ClassRow,
  Outlook,
  QueueRefusal,
  QueueRequest,
  QueueSnapshot,
  RefusalReason,
  ServedTotals,
  StrictPriorityRow,
  TenantRow,
  WaitingElsewhere,
  WaitingTotals,
  WaitReason,
} from './types.ts'
