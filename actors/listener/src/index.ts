export { LISTENER_LIMITS, type ListenerLimits } from './limits.ts'
export { type ListenerArgs, listener } from './listener.ts'
export type { ListenerMessage, SourceMessage, SourceStatus, SourceTrust, Trust } from './messages.ts'
