export { guardian } from './guardian.ts'
export type { GuardianArgs, RouterInputs } from './guardian-args.ts'
export type { GuardianMessage } from './messages.ts'
