export { FollowedPeers } from './followed-peers.ts'
export type { FollowOutcome, ReplicaBridgeMessage, ReplicasReport } from './messages.ts'
export { peerHandlers } from './peer-handlers.ts'
export { replicaBridge } from './replica-bridge.ts'
export {
  addressSought,
  type ReplicaMeeting,
  type ReplicaPlane,
  replicaBridgeArgsFromSettings,
} from './replica-bridge-args.ts'
export { replicaMetrics } from './replica-metrics.ts'
export { spawnServiceBridge } from './service-bridge.ts'
