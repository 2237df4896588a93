/**
 * API credentials: what is shown to the API server, read anew from its files. Kubernetes replaces a token
 * before it ends (after an hour, mostly), and the API server answers 401 to an old one.
 *
 * A file that cannot be read leaves what was read before: a mount that is being replaced is no reason to
 * stop.
 */

import { readBoundedFile } from '@homing/base'
import type { HttpTransport, PeerTls } from '@homing/transport'
import type { ClusterAccess, PemSource } from './cluster-access.ts'

const FILE_BYTES_MAX = 256 * 1024

export class ApiCredentials {
  readonly #access: ClusterAccess
  readonly #http: Pick<HttpTransport, 'setPeer'>
  #token: string | undefined
  #peerText = ''
  #fault: string | undefined

  constructor(access: ClusterAccess, http: Pick<HttpTransport, 'setPeer'>) {
    this.#access = access
    this.#http = http
  }

  /** Why something could not be read at the last look; undefined: all was. */
  get fault(): string | undefined {
    return this.#fault
  }

  /** True: what is shown from now on is other than before. Never rejects. */
  async renew(): Promise<boolean> {
    const { server, authorities, serverName, identity, token } = this.#access
    const before = `${this.#token}\n${this.#peerText}`
    try {
      const tls: PeerTls = {
        authorities: await read(authorities),
        serverName,
        identity: identity && {
          certificate: (await read(identity.certificate))!,
          key: (await read(identity.key))!,
        },
      }
      this.#token = (await read(token))?.trim()
      const text = JSON.stringify(tls)
      if (text !== this.#peerText && server.startsWith('https:')) this.#http.setPeer(server, tls)
      this.#peerText = text
      this.#fault = faultOfToken(this.#token)
      if (this.#fault !== undefined) this.#token = undefined
    } catch (error) {
      this.#fault = (error as Error).message
    }
    return `${this.#token}\n${this.#peerText}` !== before
  }

  get headers(): Readonly<Record<string, string>> {
    return this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }
  }

  /** Gives back what was set for the server. */
  close(): void {
    if (this.#access.server.startsWith('https:')) this.#http.setPeer(this.#access.server, undefined)
  }
}

async function read(source: PemSource | undefined): Promise<string | undefined> {
  if (source === undefined) return undefined
  if ('text' in source) return source.text
  try {
    return await readBoundedFile(source.file, FILE_BYTES_MAX)
  } catch (error) {
    throw new Error(`${source.file} cannot be read: ${(error as Error).message}`)
  }
}

function faultOfToken(token: string | undefined): string | undefined {
  if (token === undefined || /^[\x21-\x7e]+$/.test(token)) return undefined
  return 'the token for the API server is empty, or holds characters that no header takes'
}
