/** Where the settings have workers found: Kubernetes or DNS. Read before anything is started. */

import { readFile } from 'node:fs/promises'
import type { DiscoveryArgs } from '@homing/actors/directory'
import { readBoundedFile } from '@homing/base'
import { clusterServer, type RouterSettings, SettingsError } from '@homing/config'
import {
  type ClusterAccess,
  type DnsName,
  inClusterAccess,
  openDnsName,
  parseKubeconfig,
  readDnsName,
  SERVICE_ACCOUNT_FOLDER,
} from '@homing/discovery'
import { InvalidWorkerError, parseWorkerSpec } from '@homing/fleet'

const KUBECONFIG_BYTES_MAX = 1024 * 1024

/** Rejects with SettingsError. Undefined: neither is used. */
export async function readDiscovery(settings: RouterSettings): Promise<DiscoveryArgs | undefined> {
  if (settings.discovery === 'kubernetes') return kubernetesArgs(settings)
  if (settings.discovery === 'dns') return dnsArgs(settings)
  return undefined
}

async function kubernetesArgs(settings: RouterSettings): Promise<DiscoveryArgs> {
  const { kubernetesConfigFile: file, kubernetesNamespace, kubernetesServices: services } = settings
  const access = file === undefined ? await inCluster() : await fromKubeconfig(file)
  return {
    kind: 'kubernetes',
    access,
    namespace: kubernetesNamespace ?? access.namespace,
    services,
    selector: settings.kubernetesSelector,
    port: settings.kubernetesPort,
  }
}

async function inCluster(): Promise<ClusterAccess> {
  const server = clusterServer()
  if (server === undefined)
    throw new SettingsError('router', [
      '--discovery-backend kubernetes: this process is not in a pod (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig with --kubernetes-config',
    ])
  const namespace = await readFile(`${SERVICE_ACCOUNT_FOLDER}/namespace`, 'utf8').catch((thrown: Error) => {
    throw new SettingsError('router', [
      `--discovery-backend kubernetes: the service account of this pod cannot be read (${thrown.message}): set automountServiceAccountToken, or name a kubeconfig with --kubernetes-config`,
    ])
  })
  return inClusterAccess(server.host, server.port, namespace)
}

async function fromKubeconfig(file: string): Promise<ClusterAccess> {
  try {
    return parseKubeconfig(await readBoundedFile(file, KUBECONFIG_BYTES_MAX), file)
  } catch (thrown) {
    throw new SettingsError('router', [
      `--kubernetes-config ${JSON.stringify(file)} cannot be used: ${(thrown as Error).message}`,
    ])
  }
}

function dnsArgs(settings: RouterSettings): DiscoveryArgs {
  const { dnsNames, dnsServers: servers, dnsRefreshMs: refreshMs, dnsStaleMsMax: staleMsMax } = settings
  const names: DnsName[] = []
  const faults: string[] = []
  for (const text of dnsNames) {
    const name = readDnsName(text)
    const fault = typeof name === 'string' ? name : faultOfRest(name)
    if (typeof name === 'string' || fault !== undefined)
      faults.push(`--dns-name ${openDnsName(text)} ${fault}`)
    else names.push(name)
  }
  if (faults.length > 0) throw new SettingsError('router', faults)
  return { kind: 'dns', names, servers, refreshMs, staleMsMax }
}

/** Why no worker can be made of what is behind the name. */
function faultOfRest({ rest }: DnsName): string | undefined {
  try {
    parseWorkerSpec(`http://127.0.0.1:1${rest}`, 0)
    return undefined
  } catch (thrown) {
    if (thrown instanceof InvalidWorkerError) return `cannot be used: ${thrown.details['reason']}`
    throw thrown
  }
}
