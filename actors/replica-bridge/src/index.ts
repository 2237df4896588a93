export type { FollowOutcome, ReplicaBridgeMessage, ReplicasReport } from './messages.ts'
export { replicaBridge } from './replica-bridge.ts'
export { type ReplicaPlane, replicaBridgeArgsFromSettings } from './replica-bridge-args.ts'
