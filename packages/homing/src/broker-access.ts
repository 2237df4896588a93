/** How this process logs in to the NATS broker: the files of --nats-credentials-file and --nats-ca-file. */

import { readFile } from 'node:fs/promises'
import type { Log } from '@homing/base'
import { natsServersOf, SettingsError } from '@homing/config'
import { type BrokerAccess, setBrokerAccess } from '@homing/transport'
import { readCertificates } from './engine-access.ts'

export interface BrokerFiles {
  readonly natsServers: readonly string[]
  readonly natsCredentialsFile: string | undefined
  readonly natsCaFile: string | undefined
}

const CREDENTIALS_BYTES_MAX = 65_536

/** Before the first connection. Rejects with SettingsError; what is in the files is in no message. */
export async function openBrokerAccess(
  { natsServers, natsCredentialsFile, natsCaFile }: BrokerFiles,
  command: string,
  log: Pick<Log, 'warn'>,
): Promise<void> {
  const login = natsCredentialsFile === undefined ? {} : await readCredentials(natsCredentialsFile, command)
  const certificates =
    natsCaFile === undefined ? undefined : await readCertificates(natsCaFile, command, '--nats-ca-file')
  const own = natsServersOf(natsServers)
  setBrokerAccess({ ...login, certificates, servers: own })
  const servers = own.filter(server => !isOfThisMachine(server))
  const isSecretSent = login.password !== undefined || login.token !== undefined
  if (isSecretSent && certificates === undefined && servers.length > 0)
    log.warn(
      { servers },
      'the password or token for NATS could go over the network in clear, unless the broker asks for TLS; with --nats-ca-file it never does',
    )
}

function isOfThisMachine(server: string): boolean {
  const host = server.replace(/:\d+$/, '')
  return host === 'localhost' || host === '[::1]' || /^127(\.\d{1,3}){3}$/.test(host)
}

async function readCredentials(path: string, command: string): Promise<BrokerAccess> {
  const fault = (text: string) =>
    new SettingsError(command, [`--nats-credentials-file ${JSON.stringify(path)} ${text}`])
  const text = await readFile(path, 'utf8').catch((thrown: Error) => {
    throw fault(`cannot be read: ${thrown.message}`)
  })
  if (text.length > CREDENTIALS_BYTES_MAX) throw fault(`has more than ${CREDENTIALS_BYTES_MAX} bytes`)
  if (text.includes('BEGIN NATS USER JWT')) return { credentials: text }
  const line = text.trim()
  if (line === '' || /\s/.test(line))
    throw fault('holds neither a JWT with its seed, nor one line with user:password, nor one with a token')
  const colon = line.indexOf(':')
  return colon < 0 ? { token: line } : { user: line.slice(0, colon), password: line.slice(colon + 1) }
}
