/** Variables that Kubernetes puts into every container: where its API server is. They are not settings. */

/** Undefined: this process is not in a pod. */
export function clusterServer(): { readonly host: string; readonly port: string } | undefined {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = process.env
  return host === undefined || host === '' ? undefined : { host, port: port || '443' }
}
