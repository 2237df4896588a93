export {
  BoundedNames,
  type BoundedNamesOptions,
  MODEL_LABELS_DEFAULT,
  type ModelLabels,
  OTHER_NAMES,
} from './bounded-names.ts'
export { buildInfo } from './build-info.ts'
export { type FilesFigures, fileMetrics } from './file-metrics.ts'
export {
  type Counter,
  faultOfMetricName,
  type Gauge,
  type Histogram,
  type Labels,
  type MetricColumn,
  type MetricRow,
  Metrics,
  type MetricTable,
} from './metrics.ts'
export { type RenamedFamily, renamedFamilies, type SampleLabels } from './renamed-families.ts'
export { type RequestFigures, type RequestMetrics, requestMetrics } from './request-metrics.ts'
export { ServiceMetrics } from './service-metrics.ts'
export { serviceProcessMetrics } from './service-process.ts'
export { type SourceText, SummedTexts } from './summed-texts.ts'
export { type ViewFigures, viewMetrics } from './view-metrics.ts'
