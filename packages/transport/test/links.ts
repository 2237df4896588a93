/** Links: what lies under the HTTP of a test on real sockets, TCP alone or TLS over it. */

import { execFileSync, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ConnectionOptions, connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import type { TlsIdentity } from '../src/index.ts'
import { bounded } from './conformance.ts'

export const NO_OPENSSL = spawnSync('openssl', ['version']).status === 0 ? false : 'openssl is not installed'

/** A certificate of its own for 127.0.0.1; its files stay in the folder. */
export function identityIn(folder: string, name: string, ...more: readonly string[]): TlsIdentity {
  const [key, certificate] = [join(folder, `${name}.key`), join(folder, `${name}.pem`)]
  const made = ['req', '-x509', '-newkey', 'rsa:2048', '-days', '2', '-subj', `/CN=${name}`]
  const names = ['-addext', 'subjectAltName=IP:127.0.0.1']
  const cipher = more.length > 0 ? more : ['-nodes']
  execFileSync('openssl', [...made, ...cipher, '-keyout', key, '-out', certificate, ...names], {
    stdio: 'pipe',
  })
  return { certificate: readFileSync(certificate, 'utf8'), key: readFileSync(key, 'utf8') }
}

export interface Link {
  readonly name: 'TCP' | 'TLS'
  /** Why it cannot be tested here. */
  readonly skip: string | false
  /** For the listener. */
  readonly tls: TlsIdentity | undefined
  /** A client; `allowHalfOpen`: it goes on reading once it has said all. Rejects as the socket does. */
  open(port: number, options?: { readonly allowHalfOpen: boolean }): Promise<Socket>
  /** The client leaves without a word. */
  reset(client: Socket): void
}

const raws = new WeakMap<Socket, Socket>()
let made: TlsIdentity | undefined

export const LINKS: readonly Link[] = [
  {
    name: 'TCP',
    skip: false,
    tls: undefined,
    open: openRaw,
    reset: client => client.resetAndDestroy(),
  },
  {
    name: 'TLS',
    skip: NO_OPENSSL,
    get tls() {
      made ??= temporaryIdentity()
      return made
    },
    async open(port, { allowHalfOpen } = { allowHalfOpen: false }) {
      const raw = await openRaw(port, { allowHalfOpen })
      const ca = this.tls!.certificate
      const client = connectTls({
        socket: raw,
        host: '127.0.0.1',
        ca,
        allowHalfOpen: true,
      } as ConnectionOptions)
      raws.set(client, raw)
      await bounded(once(client, 'secureConnect'), 'the handshake')
      return client
    },
    reset: client => raws.get(client)!.resetAndDestroy(),
  },
]

/** A test over each of them. */
export function overEach(name: string, run: (t: Test, link: Link) => Promise<void>): void {
  for (const link of LINKS) t.test(`${name} (${link.name})`, { skip: link.skip }, t => run(t, link))
}

async function openRaw(port: number, { allowHalfOpen } = { allowHalfOpen: false }): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen })
  await once(socket, 'connect')
  return socket
}

function temporaryIdentity(): TlsIdentity {
  const folder = mkdtempSync(join(tmpdir(), 'homing-link-'))
  try {
    return identityIn(folder, 'link')
  } finally {
    rmSync(folder, { recursive: true })
  }
}
