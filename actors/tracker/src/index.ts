export type {
  Booking,
  CandidateLoads,
  GatewayLife,
  KvUsageReport,
  LoadFellMessage,
  LoadReport,
  OwnOperationsMessage,
  ReportedUsageMessage,
  RequestTracking,
  TellAgainMessage,
  TrackerMessage,
  TrackerUsage,
  WorkerLoad,
} from './messages.ts'
export { type TrackerArgs, tracker } from './tracker.ts'
export type { TrackingSettings } from './tracking.ts'
