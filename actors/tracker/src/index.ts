export type { Booking, LoadProjection, LoadReport, TrackerMessage, WorkerLoad } from './messages.ts'
export { type TrackerArgs, tracker } from './tracker.ts'
