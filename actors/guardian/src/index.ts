export { ActorLostError } from './errors.ts'
export { type GuardianArgs, guardian } from './guardian.ts'
export type { GuardianMessage, ReadyReport } from './messages.ts'
export { queueOrderOf } from './queue-rules.ts'
