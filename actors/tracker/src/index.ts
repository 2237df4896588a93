export type { LearnedImage } from './learned-lives.ts'
export type {
  Booking,
  GatewayLife,
  KvUsageReport,
  LearnedKeeperMessage,
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
