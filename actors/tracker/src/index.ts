export type { Booking, LoadProjection, TrackerMessage, WorkerLoad } from './messages.ts'
