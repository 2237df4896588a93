/** Settings of every command that uses a NATS broker. */

import type { SettingDescriptor } from './descriptor.ts'

const NATS_PORT = 4222

/** Where it is, and how to log in. `command`: the prefix of variables. */
export const brokerSettings = [
  {
    key: 'natsServers',
    name: 'nats',
    group: 'NATS',
    kind: 'list',
    placeholder: 'URL',
    separator: 'comma or space',
    unsetMeans: `nats://127.0.0.1:${NATS_PORT}, where a broker is used`,
    env: 'HOMING_NATS',
    envAliases: [{ name: 'NATS_SERVER' }],
    check: faultOfServer,
    help: 'Address of a NATS server, such as nats://10.0.0.1:4222; give it once for each server of a cluster. Users and passwords do not belong into it: see --nats-credentials-file.',
  },
  {
    key: 'natsCredentialsFile',
    name: 'nats-credentials-file',
    group: 'NATS',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'the broker wants none',
    env: 'HOMING_NATS_CREDENTIALS_FILE',
    help: 'How to log in to NATS: a credentials file (JWT and seed, as nsc writes it), or one line with user:password, or one line with a token. Password and token are sent as they are: without TLS, whoever is on the way can read them.',
  },
  {
    key: 'natsCaFile',
    name: 'nats-ca-file',
    group: 'NATS',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'TLS only where the broker offers it, with the certificates of Node',
    env: 'HOMING_NATS_CA_FILE',
    help: 'PEM file with certificates that are believed for NATS, besides those of Node and of the system; with it, the connection must be TLS, and nothing is sent before it is.',
  },
] as const satisfies readonly SettingDescriptor[]

/** 'host:port' of each server, of the one on this machine if none is named. */
export function natsServersOf(urls: readonly string[]): readonly string[] {
  if (urls.length === 0) return [`127.0.0.1:${NATS_PORT}`]
  return urls.map(url => serverOf(url)!)
}

function faultOfServer(text: string): string | undefined {
  if (text.includes('@')) return 'leave user and password out of it: put them into --nats-credentials-file'
  return serverOf(text) === undefined ? "is not 'nats://host:port'" : undefined
}

function serverOf(text: string): string | undefined {
  const match = /^(?:nats:\/\/)?(\[[^\]]+\]|[^[\]:/\s,@]+)(?::(\d{1,5}))?\/?$/.exec(text)
  const port = Number(match?.[2] ?? NATS_PORT)
  return match === null || port < 1 || port > 65_535 ? undefined : `${match[1]}:${port}`
}
