/**
 * A TCP proxy for tests: a plain balancer over several targets, and a cable that can be cut.
 *
 * While the cable is cut nothing passes either way, and neither side is notified: as in a network that loses
 * all packets. Bytes on their way arrive when it is healed, as with TCP, unless one side has given up. A slow
 * cable brings that number of bytes to its target in a millisecond.
 */

import { connect, createServer, type Server, type Socket } from 'node:net'
import { Transform } from 'node:stream'
import { systemClock } from '@homing/base'

interface Cable {
  readonly near: Socket
  readonly far: Socket
  /** Number of the target. */
  readonly target: number
}

export class TcpProxy {
  readonly #server: Server
  readonly #targets: (() => string)[]
  readonly #cables = new Set<Cable>()
  readonly #waiting: Socket[] = []
  #next = 0
  #isCut = false
  #isDown = false
  #bytesPerMs: number | undefined

  private constructor(targets: readonly (() => string)[]) {
    this.#targets = [...targets]
    this.#server = createServer({ pauseOnConnect: true }, near => {
      near.on('error', () => near.destroy())
      if (this.#isDown) near.destroy()
      else if (this.#isCut) this.#waiting.push(near)
      else this.#connect(near, 0)
    })
  }

  /**
   * Each connection goes to the next target in turn, or to the one after if the target has no listener.
   * Targets: 'host:port', read for each connection.
   */
  static async start(...targets: readonly (() => string)[]): Promise<TcpProxy> {
    const proxy = new TcpProxy(targets)
    await new Promise<void>(resolve => proxy.#server.listen(0, '127.0.0.1', resolve))
    return proxy
  }

  /** 'host:port'. */
  get address(): string {
    const address = this.#server.address()
    if (address === null || typeof address === 'string') throw new Error('the proxy does not listen')
    return `127.0.0.1:${address.port}`
  }

  /** Connections that are open now, by target. */
  get open(): readonly number[] {
    const counts = this.#targets.map(() => 0)
    for (const { target } of this.#cables) counts[target]!++
    return counts
  }

  /** Connections that are made from now on are slow. */
  slow(bytesPerMs: number): void {
    this.#bytesPerMs = bytesPerMs
  }

  cut(): void {
    this.#isCut = true
    for (const { near, far } of this.#cables) {
      near.unpipe(far)
      far.unpipe(near)
      near.pause()
      far.pause()
    }
  }

  /** Ends all connections, and each new one at once, until `heal`. */
  down(): void {
    this.#isDown = true
    this.#endAll()
  }

  heal(): void {
    this.#isCut = false
    this.#isDown = false
    for (const { near, far } of this.#cables) {
      near.pipe(far)
      far.pipe(near)
    }
    for (const near of this.#waiting.splice(0)) this.#connect(near, 0)
  }

  async stop(): Promise<void> {
    this.#endAll()
    await new Promise<void>(resolve => this.#server.close(() => resolve()))
  }

  #endAll(): void {
    for (const { near, far } of this.#cables) {
      near.destroy()
      far.destroy()
    }
    for (const near of this.#waiting.splice(0)) near.destroy()
  }

  #connect(near: Socket, tried: number): void {
    if (near.destroyed) return
    if (tried >= this.#targets.length) {
      near.destroy()
      return
    }
    const target = this.#next++ % this.#targets.length
    const [host, port] = this.#targets[target]!().split(':')
    const far = connect(Number(port), host!)
    const refused = (): void => this.#connect(near, tried + 1)
    far.once('error', refused)
    far.once('connect', () => {
      far.off('error', refused)
      this.#join({ near, far, target })
    })
  }

  #join(cable: Cable): void {
    const { near, far } = cable
    this.#cables.add(cable)
    const end = (): void => {
      this.#cables.delete(cable)
      near.destroy()
      far.destroy()
    }
    for (const socket of [near, far]) {
      socket.on('error', end)
      socket.once('close', end)
    }
    if (this.#isCut) return
    if (this.#bytesPerMs === undefined) near.pipe(far)
    else near.pipe(slowed(this.#bytesPerMs)).pipe(far)
    far.pipe(near)
  }
}

function slowed(bytesPerMs: number): Transform {
  return new Transform({
    transform(chunk: Uint8Array, _, done) {
      systemClock.after(chunk.length / bytesPerMs, () => done(null, chunk))
    },
  })
}
