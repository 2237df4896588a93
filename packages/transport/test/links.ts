/** Links: what lies under the HTTP of a test on real sockets, TCP alone or TLS over it. */

import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ConnectionOptions, connect as connectTls } from 'node:tls'
import type { Test } from 'tap'
import type { TlsIdentity } from '../src/index.ts'
import { NO_OPENSSL, selfSigned } from '../src/testing.ts'
import { bounded } from './inbox.ts'

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

/** A test of `t` over each of them. */
export function overEach(
  t: Pick<Test, 'test'>,
  name: string,
  run: (t: Test, link: Link) => Promise<void>,
): void {
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
    return selfSigned(folder, 'link')
  } finally {
    rmSync(folder, { recursive: true })
  }
}
