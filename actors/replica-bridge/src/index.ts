export type { ReplicaBridgeMessage, ReplicasReport, ReplicaView } from './messages.ts'
export { replicaBridge } from './replica-bridge.ts'
export {
  type ReplicaBridgeArgs,
  type ReplicaPlane,
  replicaBridgeArgsFromSettings,
} from './replica-bridge-args.ts'
