/**
 * Cluster access: where the API server of a Kubernetes cluster is, how it is recognized, and what the router
 * shows it. In a pod all of it comes from the files of its service account; elsewhere from a kubeconfig.
 *
 * Plain data without secrets but for a token that a kubeconfig holds itself: files are named here and read
 * where they are needed, because Kubernetes replaces them while the router runs.
 */

import { dirname, resolve } from 'node:path'
import { openName, readYaml } from '@homing/base'

/** PEM text, or the file that has it. */
export type PemSource = { readonly text: string } | { readonly file: string }

export interface ClusterAccess {
  /** 'https://host:port', and the path under which the API is, if it has one. */
  readonly server: string
  /** The namespace of the service account, or of the context. */
  readonly namespace: string
  /** Undefined: the authorities that are believed anyway. */
  readonly authorities: PemSource | undefined
  readonly serverName: string | undefined
  readonly token: { readonly text: string } | { readonly file: string } | undefined
  readonly identity: { readonly certificate: PemSource; readonly key: PemSource } | undefined
}

/** Where Kubernetes mounts the files of a pod's service account. */
export const SERVICE_ACCOUNT_FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount'

/** `namespace`: what the file of that name says. `host` and `port`: KUBERNETES_SERVICE_HOST and …_PORT. */
export function inClusterAccess(
  host: string,
  port: string,
  namespace: string,
  folder = SERVICE_ACCOUNT_FOLDER,
): ClusterAccess {
  return {
    server: `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
    namespace: namespace.trim(),
    authorities: { file: `${folder}/ca.crt` },
    serverName: undefined,
    token: { file: `${folder}/token` },
    identity: undefined,
  }
}

/**
 * The current context of a kubeconfig. Throws an Error that says what is wrong with it and repeats no
 * secret. `path`: files in it are relative to its folder.
 */
export function parseKubeconfig(text: string, path: string): ClusterAccess {
  const root = map(readYaml(text), 'it')
  const contextName = named(root['current-context'])
  if (contextName === undefined) throw new Error('it has no current-context')
  const context = map(entry(root, 'contexts', contextName)['context'], `context ${shown(contextName)}`)
  const clusterName = named(context['cluster'])
  const userName = named(context['user'])
  if (clusterName === undefined) throw new Error(`context ${shown(contextName)} names no cluster`)
  const cluster = map(entry(root, 'clusters', clusterName)['cluster'], `cluster ${shown(clusterName)}`)
  const user =
    userName === undefined ? {} : map(entry(root, 'users', userName)['user'], `user ${shown(userName)}`)
  const server = serverOf(cluster, clusterName)
  if (cluster['insecure-skip-tls-verify'] === true)
    throw new Error(
      `cluster ${shown(clusterName)} has insecure-skip-tls-verify: the router always checks; give certificate-authority`,
    )
  const tokenFile = named(user['tokenFile'])
  const token = named(user['token'])
  if (user['exec'] !== undefined || user['auth-provider'] !== undefined)
    throw new Error(
      `user ${shown(userName!)} logs in by a program, which the router does not run: give it a token, a tokenFile or a client certificate`,
    )
  const inFolder = (file: string): string => resolve(dirname(path), file)
  const certificate = pem(user, 'client-certificate', inFolder)
  const key = pem(user, 'client-key', inFolder)
  if ((certificate === undefined) !== (key === undefined))
    throw new Error(
      `user ${shown(userName!)} has one of client-certificate and client-key: it needs both, or neither`,
    )
  return {
    server,
    namespace: named(context['namespace']) ?? 'default',
    authorities: pem(cluster, 'certificate-authority', inFolder),
    serverName: named(cluster['tls-server-name']),
    token:
      tokenFile !== undefined
        ? { file: inFolder(tokenFile) }
        : token === undefined
          ? undefined
          : { text: token },
    identity: certificate === undefined || key === undefined ? undefined : { certificate, key },
  }
}

function serverOf(cluster: Readonly<Record<string, unknown>>, name: string): string {
  const url = URL.parse(named(cluster['server']) ?? '')
  if (url === null || (url.protocol !== 'https:' && url.protocol !== 'http:'))
    throw new Error(`cluster ${shown(name)} has no server such as https://10.0.0.1:6443`)
  if (url.username !== '' || url.password !== '')
    throw new Error(`the server of cluster ${shown(name)} must not have a user name or password`)
  const port = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port
  return `${url.protocol}//${url.hostname}:${port}${url.pathname.replace(/\/$/, '')}`
}

/** The entry of a list of names. */
function entry(root: Readonly<Record<string, unknown>>, list: string, name: string) {
  const entries = Array.isArray(root[list]) ? (root[list] as readonly unknown[]) : []
  const found = entries.find(one => isMap(one) && one['name'] === name)
  if (found === undefined) throw new Error(`its ${list} have no ${shown(name)}`)
  return found as Readonly<Record<string, unknown>>
}

function pem(
  from: Readonly<Record<string, unknown>>,
  name: string,
  inFolder: (file: string) => string,
): PemSource | undefined {
  const data = named(from[`${name}-data`])
  if (data !== undefined) return { text: Buffer.from(data, 'base64').toString() }
  const file = named(from[name])
  return file === undefined ? undefined : { file: inFolder(file) }
}

function map(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (!isMap(value)) throw new Error(`${what} is no map`)
  return value
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function named(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

const shown = (name: string): string => openName(name)
