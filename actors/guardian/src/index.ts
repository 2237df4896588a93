export { ActorLostError } from './errors.ts'
export { guardian } from './guardian.ts'
export type { GuardianArgs, RouterInputs } from './guardian-args.ts'
export type { GuardianMessage, ReadyReport } from './messages.ts'
