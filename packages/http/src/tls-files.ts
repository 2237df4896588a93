/**
 * TLS files: the certificate and the private key of a listener, in two files that are followed while it
 * serves. Connections that begin after a change see the new certificate, open ones go on with theirs.
 */

import type { Log } from '@homing/base'
import { expiryMsOf, faultOfIdentity, type TlsIdentity } from '@homing/transport'
import { type FollowedFile, FollowedFiles, readFollowedFiles } from './followed-files.ts'

/** Of each of the two files. */
export const TLS_FILE_BYTES_MAX = 1024 * 1024

/** What an actor that listens is given. */
export interface TlsArgs {
  readonly certificateFile: string
  readonly keyFile: string
  /** What was in them at the start: it counts where a later life finds nothing that can be used. */
  readonly identity: TlsIdentity
}

type TlsPaths = Pick<TlsArgs, 'certificateFile' | 'keyFile'>

/** Rejects with an error whose message names the setting, the file and what is wrong with it. */
export async function readTlsFiles(paths: TlsPaths): Promise<TlsIdentity> {
  return identityOf(filesOf(paths), await readFollowedFiles(filesOf(paths), TLS_FILE_BYTES_MAX))
}

/** `log` undefined: another listener with the same files tells of changes. */
export function followTls(
  args: TlsArgs,
  changed: (identity: TlsIdentity) => void,
  log: Pick<Log, 'info' | 'warn'> | undefined,
): FollowedFiles<TlsIdentity> {
  const files = filesOf(args)
  return new FollowedFiles({
    files,
    bytesMax: TLS_FILE_BYTES_MAX,
    parse: texts => identityOf(files, texts),
    value: args.identity,
    changed,
    log,
  })
}

/** For metrics: Unix time in seconds at which its certificate ends. */
export function tlsExpirySeconds(files: FollowedFiles<TlsIdentity>): number {
  return Math.floor(expiryMsOf(files.value) / 1000)
}

function filesOf({ certificateFile, keyFile }: TlsPaths): readonly [FollowedFile, FollowedFile] {
  return [
    { option: '--tls-cert', path: certificateFile },
    { option: '--tls-key', path: keyFile },
  ]
}

function identityOf(files: readonly FollowedFile[], texts: readonly string[]): TlsIdentity {
  const identity = { certificate: texts[0]!, key: texts[1]! }
  const fault = faultOfIdentity(identity)
  if (fault === undefined) return identity
  const { option, path } = files[fault.of === 'certificate' ? 0 : 1]!
  throw new Error(`${option} ${JSON.stringify(path)} ${fault.why}`)
}
