export {
  BadClientKeysError,
  type ClientKey,
  parseClientKeys,
} from './client-keys.ts'
export {
  type ClientLease,
  type ClientLimit,
  ClientLimits,
  type ClientRefusal,
} from './client-limits.ts'
export { QUEUE_ORDERS, type QueueOrder } from './orders.ts'
export { Overload } from './overload.ts'
export { BadPolicyClassesError, type PolicyFile, parsePolicyClasses } from './policy-class-file.ts'
export { type PolicyClass, type PolicyProfile, policyClassOf, singleClassProfile } from './policy-classes.ts'
export { PriorityQueue } from './priority-queue.ts'
export type { PriorityQueueOptions } from './queue-options.ts'
export { QueueRoom } from './queue-room.ts'
export { AGING_MS_DEFAULT, QUEUE_LOOK_MS, WAIT_MS_MAX_DEFAULT } from './queue-times.ts'
export {
  ModelRules,
  mustWait,
  orderOf,
  type QueueRules,
  type RoomRule,
  type Thresholds,
  thresholdOf,
  thresholdState,
} from './room-rules.ts'
export { SLICE_RULES, sliceTokens } from './slices.ts'
export { OTHER_TENANTS, TenantNames, type UnnamedTenants } from './tenant-names.ts'
export { type Claim, TenantShares } from './tenant-shares.ts'
export type {
  Admission,
  ClassRow,
  CountedPrompt,
  QueueRefusal,
  QueueRequest,
  QueueSnapshot,
  ServedTotals,
  WaitingElsewhere,
  WaitingTotals,
  WaitReason,
} from './types.ts'
