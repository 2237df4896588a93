/** Settings of `homing router`: where workers are found in Kubernetes and behind DNS names. */

import type { RuleFacts, SettingDescriptor } from '../descriptor.ts'
import { HOUR_MS, SECOND_MS } from '../units.ts'

const KUBERNETES = 'With --discovery-backend kubernetes'
const DNS = 'With --discovery-backend dns'

export const discoverySettings = [
  {
    key: 'kubernetesServices',
    name: 'kubernetes-service',
    group: 'Discovery',
    kind: 'list',
    placeholder: 'NAME',
    separator: 'comma or space',
    unsetMeans: 'the Services that --kubernetes-selector takes',
    check: text => (isName(text, 63) ? undefined : "is no name of a Service: use a-z, 0-9 and '-'"),
    help: `${KUBERNETES}: the Service whose pods are workers; give it once for each. The router follows its EndpointSlices: a pod that is ready takes requests, one that is not ready or terminates gets no new ones and ends what it has, one that is gone leaves. Annotations of the pod (homing/role, homing/ranks, homing/events, …) say what its engine does not.`,
  },
  {
    key: 'kubernetesSelector',
    name: 'kubernetes-selector',
    group: 'Discovery',
    kind: 'text',
    placeholder: 'LABELS',
    default: undefined,
    unsetMeans: 'the Services of --kubernetes-service, whatever their labels',
    check: text =>
      /^[\w\s./,=!()-]{1,1024}$/.test(text) ? undefined : 'is no selector of labels, such as app=vllm',
    help: `${KUBERNETES}: labels of the Services whose pods are workers, such as app=vllm,tier in (a, b).`,
  },
  {
    key: 'kubernetesNamespace',
    name: 'kubernetes-namespace',
    group: 'Discovery',
    kind: 'text',
    placeholder: 'NAME',
    default: undefined,
    unsetMeans: 'that of the service account of the pod, or of the context of --kubernetes-config',
    check: text => (isName(text, 63) ? undefined : "is no name of a namespace: use a-z, 0-9 and '-'"),
    help: `${KUBERNETES}: the namespace of Services and pods. The router needs a Role there with get, list and watch for endpointslices (discovery.k8s.io) and pods.`,
  },
  {
    key: 'kubernetesPort',
    name: 'kubernetes-port',
    group: 'Discovery',
    kind: 'text',
    placeholder: 'PORT',
    default: undefined,
    unsetMeans: 'the port of the Service named http, or its only one',
    check: text =>
      /^\d+$/.test(text)
        ? Number(text) >= 1 && Number(text) <= 65_535
          ? undefined
          : 'is no port from 1 to 65535'
        : isName(text, 63)
          ? undefined
          : 'is no name or number of a port',
    help: `${KUBERNETES}: name, or number in the pods, of the port that takes requests. The annotation homing/port of a pod comes before it.`,
  },
  {
    key: 'kubernetesConfigFile',
    name: 'kubernetes-config',
    group: 'Discovery',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'the service account of the pod that the router runs in',
    help: `${KUBERNETES}: kubeconfig whose current context says where the API server is and how the router logs in: by token, tokenFile or client certificate. Programs that make tokens (exec) are not run.`,
  },
  {
    key: 'dnsNames',
    name: 'dns-name',
    group: 'Discovery',
    kind: 'list',
    placeholder: 'URL',
    separator: 'comma or space',
    unsetMeans: 'no workers are found by DNS',
    help: `${DNS}: where workers are, once for each name. http://NAME:PORT: one at each address of the name (A, or AAAA where it has no A), as a headless Service has them. srv://NAME: one at each address and port of its SRV records. Path and parameters are those of --worker. Names are asked as they stand, without search domains.`,
  },
  {
    key: 'dnsServers',
    name: 'dns-server',
    group: 'Discovery',
    kind: 'list',
    placeholder: 'ADDRESS',
    separator: 'comma or space',
    unsetMeans: 'those of the system (/etc/resolv.conf)',
    check: text =>
      isDnsServer(text) ? undefined : 'is no address of a DNS server, such as 10.96.0.10 or 127.0.0.1:5353',
    help: `${DNS}: a server that is asked, once for each.`,
  },
  {
    key: 'dnsRefreshMs',
    name: 'dns-refresh',
    group: 'Discovery',
    kind: 'duration',
    default: 5 * SECOND_MS,
    min: SECOND_MS,
    max: HOUR_MS,
    help: `${DNS}: longest time until a name is asked again; sooner where its answer says that it holds for less, but not within a second. An address that two answers in a row lack drains.`,
  },
  {
    key: 'dnsStaleMsMax',
    name: 'dns-stale-timeout',
    group: 'Discovery',
    kind: 'duration',
    default: 10 * 60 * SECOND_MS,
    min: SECOND_MS,
    max: 24 * HOUR_MS,
    help: `${DNS}: how long the last answer counts while no server answers. After that, workers that do not answer their probes leave; those that do stay.`,
  },
] as const satisfies readonly SettingDescriptor[]

interface DiscoverySettings {
  readonly discovery: string
  readonly workers: readonly string[]
  readonly workersFile: string | undefined
  readonly workerNamespace: string | undefined
  readonly kubernetesServices: readonly string[]
  readonly kubernetesSelector: string | undefined
  readonly dnsNames: readonly string[]
}

/** False: no workers are named, nor where they are found. */
export function namesWorkers(
  settings: Pick<DiscoverySettings, 'workers' | 'workersFile' | 'workerNamespace' | 'discovery'>,
): boolean {
  const { workers, workersFile, workerNamespace, discovery } = settings
  if (workers.length > 0 || workersFile !== undefined || workerNamespace !== undefined) return true
  return discovery === 'kubernetes' || discovery === 'dns'
}

export function faultOfDiscovery({ settings, isGiven }: RuleFacts<DiscoverySettings>): string | undefined {
  const { discovery, workerNamespace, kubernetesServices, kubernetesSelector, dnsNames } = settings
  if (discovery !== 'nats' && discovery !== 'etcd' && workerNamespace !== undefined)
    return `--discovery-backend ${discovery} takes no workers that register themselves: leave out --worker-namespace, or use nats or etcd`
  if (discovery === 'kubernetes' && kubernetesServices.length === 0 && kubernetesSelector === undefined)
    return '--discovery-backend kubernetes needs a Service: name it with --kubernetes-service, or by its labels with --kubernetes-selector'
  if (discovery === 'dns' && dnsNames.length === 0)
    return '--discovery-backend dns needs a name: give --dns-name http://NAME:PORT or srv://NAME'
  const idle = discoverySettings.find(({ key, name }) => isGiven(key as never) && !name.startsWith(discovery))
  return (
    idle &&
    `--${idle.name} has no effect without --discovery-backend ${idle.name.split('-')[0]}: give it, or leave it out`
  )
}

/** An address, or one with a port; that of IPv6 is then in brackets. */
function isDnsServer(text: string): boolean {
  if (isIPv6(text)) return true
  const [, four, six, port = '53'] = /^(?:([\d.]+)|\[([\da-fA-F:.]+)\])(?::(\d{1,5}))?$/.exec(text) ?? []
  const isAddress = four === undefined ? isIPv6(six ?? '') : isIPv4(four)
  return isAddress && Number(port) >= 1 && Number(port) <= 65_535
}

/** Checked by the reader of URLs, which writes '10' or '010.1.1.1' otherwise than they were given. */
function isIPv4(text: string): boolean {
  return URL.canParse(`http://${text}/`) && new URL(`http://${text}/`).hostname === text
}

function isIPv6(text: string): boolean {
  return /^[\da-fA-F:.]*:[\da-fA-F:.]*$/.test(text) && URL.canParse(`http://[${text}]/`)
}

/** As Kubernetes has names of Services, namespaces and ports (RFC 1123). */
function isName(text: string, charactersMax: number): boolean {
  return text.length <= charactersMax && /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/.test(text)
}
