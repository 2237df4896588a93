export type { ListenerMessage } from './messages.ts'
