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
export { tracker } from './tracker.ts'
export { type TrackerArgs, trackerArgsFromSettings } from './tracker-args.ts'
