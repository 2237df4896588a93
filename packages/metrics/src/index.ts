export { type BuildInfo, buildInfo } from './build-info.ts'
export {
  type Counter,
  faultOfMetricName,
  type Gauge,
  type Histogram,
  type HistogramDeclaration,
  type HistogramTotal,
  type HistogramTotals,
  type Labels,
  type MetricColumn,
  type MetricDeclaration,
  type MetricRow,
  Metrics,
  type MetricTable,
} from './metrics.ts'
