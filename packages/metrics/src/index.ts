export {
  type Counter,
  faultOfMetricName,
  type Gauge,
  type Histogram,
  type HistogramDeclaration,
  type Labels,
  type MetricDeclaration,
  Metrics,
} from './metrics.ts'
