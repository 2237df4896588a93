/** Bodies of requests over a request plane: what is kept of them takes about the bytes that they have. */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { decodeCallPayload } from '../src/nats/request-wire.ts'
import { RequestBody } from '../src/requests/body.ts'
import { FRAME } from '../src/requests/frames.ts'
import { decodeTcpFrame, encodeTcpFrame } from '../src/tcp/tcp-wire.ts'

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc') as () => void
const LIMITS = { windowBytes: 2 ** 30, bodySilenceMsMax: 1000 }
const MIB = 2 ** 20

function heldBytes(): number {
  // Buffers are given back some time after the first.
  for (let i = 0; i < 3; i++) gc()
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

t.test('a body in pieces of one byte takes no more than a few times its bytes', async t => {
  const whole = Buffer.from(Array.from({ length: MIB }, (_, i) => i % 251))
  const body = new RequestBody(whole.length, LIMITS, () => {})
  const before = heldBytes()
  for (let at = 0; at < whole.length - 1; at++) body.put(whole.subarray(at, at + 1), true)
  const held = heldBytes() - before
  t.ok(held < 8 * MIB, `${held} bytes are held`)
  body.put(whole.subarray(-1), true)
  t.ok(whole.equals(await body.read(MIB)), 'and is read as it was sent')
})

t.test('a small piece does not keep the bytes that it came with', async t => {
  const bodies: RequestBody[] = []
  const before = heldBytes()
  for (let i = 0; i < 1000; i++) {
    const body = new RequestBody(10, LIMITS, () => {})
    body.put(Buffer.from(new ArrayBuffer(64 * 1024), 0, 1), true)
    bodies.push(body)
  }
  const held = heldBytes() - before
  t.ok(held < 16 * MIB, `${held} bytes are held by ${bodies.length} bodies`)
})

t.test('pieces of all sizes come out in their order', async t => {
  const whole = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i % 251))
  const body = new RequestBody(whole.length, LIMITS, () => {})
  for (let at = 0, size = 1; at < whole.length; at += size, size = 1 + ((size * 7 + 3) % 3001))
    body.put(whole.subarray(at, at + size), true)
  t.ok(whole.equals(await body.read(whole.length)))
})

t.test('an empty piece is none, at either wire', async t => {
  for (const kind of [FRAME.body, FRAME.data]) {
    const frame = (bytes: Uint8Array) => decodeTcpFrame(encodeTcpFrame(kind, 1, bytes).subarray(4))
    t.equal(frame(Buffer.alloc(0)), undefined)
    t.equal(frame(Buffer.alloc(1))?.kind, kind)
    const payload = (size: number) =>
      Buffer.from([1, ...Array(12).fill(0), kind, size, 0, 0, 0, ...Array(size)])
    t.equal(decodeCallPayload(payload(0)), undefined)
    t.match(decodeCallPayload(payload(1)), { frames: [{ kind }] })
  }
})
