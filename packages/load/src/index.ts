export { ActiveLoad } from './active-load.ts'
export { AUTO_CONSTANTS } from './auto-constants.ts'
export {
  type BusyThresholds,
  hasThreshold,
  mergedThresholds,
  NO_BUSY_THRESHOLDS,
  type RankLoad,
  whyBusy,
} from './busy-thresholds.ts'
export { type ChainDigest, chainDigest, depthAt, digestLength } from './chain-digest.ts'
export { EngineBook, STEP_TOKENS_DEFAULT } from './engine-book.ts'
export { DECODE_PRIOR, LearnedCosts, PREFILL_PRIOR } from './engine-costs.ts'
export {
  copyProjection,
  type EngineFigures,
  type EngineProjection,
  FIGURE_OFFSET,
  FIGURES_PER_SLOT,
  figureOf,
  figuresOf,
  filterProjection,
} from './engine-projection.ts'
export { FirstTokenTimes } from './first-token-times.ts'
export {
  type FleetImage,
  fleetImageFault,
  LearnedValues,
  type WorkerImage,
  workerImageFault,
} from './learned-values.ts'
export {
  type ComparedWorker,
  type OddChange,
  type OddFigure,
  type OddMark,
  OddWorkers,
} from './odd-workers.ts'
export { KNEES, prefillCost, shortOfKnee } from './prefill-costs.ts'
export type { LearnedSpeed, SaidUsage } from './reports.ts'
export { SharedBlocks } from './shared-blocks.ts'
export type { LoadStats, LoadTotals } from './types.ts'
