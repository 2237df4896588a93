/** Certificates for tests, made by openssl, and TLS in front of a server in this process. */

import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { createServer, type Server } from 'node:tls'
import { NO_OPENSSL, selfSigned } from '@homing/transport/testing'

export const hasOpenssl = NO_OPENSSL === false

export interface Certificate {
  readonly key: string
  readonly cert: string
}

/** Signed by itself, for these names. */
export function certificate(folder: string, name: string, names: string): Certificate {
  const { key, certificate: cert } = selfSigned(folder, name, names)
  return { key, cert }
}

/** One that was good for a day, some years ago. Signed by itself, too. */
export function expiredCertificate(folder: string, names: string): Certificate {
  const at = (name: string) => join(folder, name)
  writeFileSync(
    at('ca.cnf'),
    [
      ...['[ca]', 'default_ca = here', '[here]', `database = ${at('index')}`, `new_certs_dir = ${folder}`],
      ...['rand_serial = yes', 'default_md = sha256', 'policy = any', 'copy_extensions = copy'],
      ...['[any]', 'commonName = supplied', ''],
    ].join('\n'),
  )
  writeFileSync(at('index'), '')
  const [key, cert] = [at('expired.key'), at('expired.pem')]
  const asked = ['req', '-new', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=homing-test']
  const files = ['-keyout', key, '-out', at('expired.csr'), '-addext', `subjectAltName=${names}`]
  execFileSync('openssl', [...asked, ...files], { stdio: 'pipe' })
  const signed = ['ca', '-config', at('ca.cnf'), '-selfsign', '-keyfile', key, '-batch', '-notext']
  const days = ['-startdate', '20200101000000Z', '-enddate', '20200102000000Z']
  execFileSync('openssl', [...signed, ...days, '-in', at('expired.csr'), '-out', cert], { stdio: 'pipe' })
  return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') }
}

/** What comes to it goes to `port`, decrypted. Answers its own port. */
export async function tlsFront(given: Certificate, port: number, host = '127.0.0.1'): Promise<TlsFront> {
  const open = new Set<Socket>()
  const server = createServer(given, socket => {
    const behind = connect(port, host)
    socket.pipe(behind).pipe(socket)
    open.add(socket)
    socket.on('close', () => open.delete(socket))
    for (const one of [socket, behind])
      one.on('error', () => [socket, behind].forEach(end => void end.destroy()))
  })
  server.on('tlsClientError', () => {})
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const endConnections = (): void => {
    for (const socket of open) socket.destroy()
  }
  return { port: (server.address() as AddressInfo).port, server, endConnections }
}

export interface TlsFront {
  readonly port: number
  readonly server: Server
  endConnections(): void
}
