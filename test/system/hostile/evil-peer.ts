/**
 * The evil peer at the broker: with a login of its own it registers workers that are none, and says what it
 * likes under every subject that routers hear.
 */

import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { Random } from '@homing/base'
import { CLAIMS, type Hearsay, mutated, pick, randomBytes, type Stranger } from './stranger.ts'

const HEAD_BYTES = 14

/** `namespace` and `group`: of the routers. `login`: user and password of this peer. */
export async function evilPeer(
  address: string,
  hearsay: Hearsay,
  login: { readonly user: string; readonly pass: string },
  namespace: string,
  group: string,
  evilUrl: string,
): Promise<Stranger> {
  const [host, port] = address.split(':')
  const socket: Socket = connect(Number(port), host)
  socket.on('error', () => {})
  await once(socket, 'connect')
  socket.on('data', bytes => {
    hearsay.add(bytes)
    if (bytes.includes('PING')) socket.write('PONG\r\n')
  })
  socket.write(`CONNECT ${JSON.stringify({ verbose: false, ...login })}\r\nSUB homing.> 1\r\n`)
  const replicas = `homing.replicas.${group}`
  const say = async (subject: string, payload: Uint8Array): Promise<void> => {
    const head = Buffer.from(`PUB ${subject} ${payload.length}\r\n`)
    if (!socket.write(Buffer.concat([head, payload, Buffer.from('\r\n')]))) await once(socket, 'drain')
  }
  const register = (random: Random, url: string): Promise<void> =>
    say(
      `homing.workers.${namespace}.present`,
      framed(random, [Buffer.from(JSON.stringify({ version: 1, url }))]),
    )
  return {
    name: 'peer',
    stop: () => void socket.destroy(),
    deeds: {
      register: random =>
        register(
          random,
          pick(random, [
            `${evilUrl}/r${random.below(50)}?events_host=_x`,
            `${evilUrl}/r${random.below(50)}?events=tcp://gpu%3Fnode:1`,
            `${evilUrl}/r${random.below(50)}?ranks=1024`,
            `${evilUrl}/r${random.below(50)}?key_env=PATH`,
            `http://127.0.0.1:1/${random.below(1e6)}`,
            `http://evil:secret@127.0.0.1:1/`,
            'http://[',
          ]),
        ),
      claims: random =>
        say(pick(random, SUBJECTS(namespace, replicas)), framed(random, [pick(random, CLAIMS)])),
      noise: random =>
        say(
          pick(random, SUBJECTS(namespace, replicas)),
          mutated(random, framed(random, [randomBytes(random, random.below(300)), pick(random, CLAIMS)])),
        ),
      flood: async random => {
        for (let i = 0; i < 50; i++)
          await say(pick(random, SUBJECTS(namespace, replicas)), framed(random, [pick(random, CLAIMS)]))
      },
    },
  }
}

const SUBJECTS = (namespace: string, replicas: string): readonly string[] => [
  `homing.workers.${namespace}.present`,
  `homing.workers.${namespace}.hello`,
  ...['events', 'beats', 'hello', 'ask', 'present'].map(word => `${replicas}.${word}`),
]

/** A whole message of a life that is drawn: see packages/transport/src/nats/payload.ts. */
function framed(random: Random, frames: readonly Uint8Array[]): Buffer {
  const head = Buffer.alloc(HEAD_BYTES)
  head[0] = 1
  randomBytes(random, 8).copy(head, 2)
  head.writeUInt32LE(1, 10)
  const rest = frames.map(frame => {
    const length = Buffer.alloc(4)
    length.writeUInt32LE(frame.length)
    return Buffer.concat([length, frame])
  })
  return Buffer.concat([head, ...rest])
}
