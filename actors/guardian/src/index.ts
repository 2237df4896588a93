export { guardian } from './guardian.ts'
export type { GuardianArgs, RouterInputs } from './guardian-args.ts'
export type { GuardianMessage, RouterParts } from './messages.ts'
