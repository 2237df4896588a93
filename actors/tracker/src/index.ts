export type {
  Booking,
  GatewayLife,
  KvUsageReport,
  LoadFellMessage,
  LoadReport,
  OwnOperationsMessage,
  ReportedUsageMessage,
  TellAgainMessage,
  TrackerMessage,
  TrackerUsage,
  WorkerLoad,
} from './messages.ts'
export { type TrackerArgs, tracker } from './tracker.ts'
