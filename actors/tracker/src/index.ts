export { bookingMetrics } from './booking-metrics.ts'
export { LearnedFileError, UnusableLearnedFileError } from './errors.ts'
export { learnedStore, prepareLearnedFile } from './learned-file.ts'
export { decodeLearned, encodeLearned, type LearnedImage } from './learned-image.ts'
export type {
  BookedPlace,
  Booking,
  BookingOutcome,
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
  WorkerOddMark,
} from './messages.ts'
export { tracker } from './tracker.ts'
export { type TrackerArgs, trackerArgsFromSettings } from './tracker-args.ts'
