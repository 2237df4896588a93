export { buildInfo } from './build-info.ts'
export {
  type Counter,
  faultOfMetricName,
  type Gauge,
  type Histogram,
  type Labels,
  type MetricColumn,
  Metrics,
} from './metrics.ts'
