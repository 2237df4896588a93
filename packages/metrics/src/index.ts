export {
  type Counter,
  faultOfMetricName,
  type Gauge,
  type Histogram,
  type HistogramDeclaration,
  type HistogramTotal,
  type HistogramTotals,
  type Labels,
  type MetricDeclaration,
  Metrics,
} from './metrics.ts'
