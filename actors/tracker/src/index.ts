export type {
  Booking,
  CandidateLoads,
  GatewayLife,
  LoadFellMessage,
  LoadReport,
  OwnOperationsMessage,
  RequestTracking,
  TellAgainMessage,
  TrackerMessage,
  TrackerUsage,
  WorkerLoad,
} from './messages.ts'
export { type TrackerArgs, tracker } from './tracker.ts'
export type { TrackingSettings } from './tracking.ts'
