export { type DnsName, openDnsName, readDnsName } from './dns/dns-name.ts'
export { DnsSource, type DnsSourceOptions } from './dns/dns-source.ts'
export type {
  Absence,
  FoundFault,
  FoundList,
  FoundState,
  FoundWorker,
  SourceHandler,
  WorkerSource,
} from './found-worker.ts'
export { readApiList, readApiStatus, readApiWatchLine } from './kubernetes/api-answers.ts'
export {
  type ClusterAccess,
  inClusterAccess,
  parseKubeconfig,
  SERVICE_ACCOUNT_FOLDER,
} from './kubernetes/cluster-access.ts'
export { readEndpointSlice } from './kubernetes/endpoint-slice.ts'
export { type KubernetesPlace, KubernetesSource } from './kubernetes/kubernetes-source.ts'
export { type SliceWorkersOptions, sliceWorkers } from './kubernetes/slice-workers.ts'
export { readWorkerNotes } from './kubernetes/worker-notes.ts'
