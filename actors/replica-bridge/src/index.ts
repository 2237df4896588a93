export type { ReplicaBridgeMessage, ReplicasReport, ReplicaView } from './messages.ts'
export { type ReplicaBridgeArgs, type ReplicaPlane, replicaBridge } from './replica-bridge.ts'
