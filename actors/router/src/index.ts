export type { HourReport } from './last-hour.ts'
export type { RouterKeeperMessage, RouterMessage } from './messages.ts'
export { router } from './router.ts'
export { type RouterArgs, routerArgsFromSettings } from './router-args.ts'
