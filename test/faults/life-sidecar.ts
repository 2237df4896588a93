/**
 * Sidecar observer: the sidecar in a history of lives.
 *
 * Owns   the present life of the sidecar, and its signs. Its claims are its answers to a router that asks.
 */

import { type Clock, silentLog } from '@homing/base'
import { decodeKvBatch, parseSnapshotReply, snapshotRequestFrames } from '@homing/protocol'
import { PolledSidecar, Republisher, Sidecar } from '@homing/publisher'
import type { Claim } from './life-claim.ts'
import type { LifeEngine } from './life-engine.ts'
import { BLOCK_TOKENS, BLOCKS, tokensOf } from './life-prompts.ts'
import { Signs } from './life-signs.ts'
import type { Surroundings } from './life-surroundings.ts'
import { Wire } from './life-wire.ts'

/** The sidecar, and its answers to a router that asks now. */
export class SidecarObserver {
  readonly wire: Wire
  signs: Signs
  readonly #around: Surroundings
  readonly #engine: LifeEngine
  readonly #bufferBatches: number
  #sidecar: { readonly isWhole: boolean; close(): Promise<void> } | undefined
  /** The engine does not answer. */
  #isDown = false

  constructor(around: Surroundings, engine: LifeEngine, bufferBatches: number) {
    this.#around = around
    this.#engine = engine
    this.#bufferBatches = bufferBatches
    this.signs = new Signs(engine, around.clock, around.moments)
    this.wire = new Wire(
      around.clock,
      around.origins,
      {
        live: (_endpoint, origin) => {
          if (origin !== undefined) this.signs.live(origin)
        },
        repeated() {},
        connected: () => this.signs.connected(),
        disconnected: () => {
          this.#isDown = true
          this.signs.disconnected()
        },
        polled: events => {
          if (this.#isDown) this.signs.connected()
          this.#isDown = false
          for (const { event_id: sequence, life, moment } of events) {
            const origin = {
              engine: this.#engine,
              life,
              sequence,
              moment,
              told: '',
              isShared: false,
              again: [],
            }
            this.signs.live(origin)
          }
        },
        probed() {},
      },
      line => around.tell(`sidecar: ${line}`),
    )
  }

  get isUp(): boolean {
    return this.#sidecar !== undefined
  }

  async start(): Promise<void> {
    if (this.isUp) return
    const { clock, random, moments, places } = this.#around
    this.signs = new Signs(this.#engine, clock, moments)
    const transport = this.wire.over(this.#around.transport())
    const options = {
      clock,
      random,
      messages: transport.messages,
      eventsEndpoint: places.sidecarEvents,
      replayEndpoint: places.sidecarReplay,
      topic: '',
      replayForm: 'topic',
      queuedMessagesMax: 100_000,
      repliesMax: 16,
      bufferBatchesMax: this.#bufferBatches,
    } as const
    if (!this.#engine.kind.isPolled) {
      const engineEndpoint = this.#engine.eventsEndpoint
      const sidecar = await Sidecar.open({ ...options, log: silentLog, engineEndpoint })
      this.#sidecar = {
        get isWhole() {
          return sidecar.status()?.isWhole === true
        },
        close: () => sidecar.close(0),
      }
      return
    }
    const engine = this.#engine
    // Its batches have no time of their own; both run on one host, whose time they use.
    const ofHost: Clock = {
      nowMs: () => clock.nowMs(),
      wallMs: () => engine.wallMs,
      after: (delayMs, callback) => clock.after(delayMs, callback),
    }
    const out = await Republisher.open({ ...options, clock: ofHost })
    const polled = new PolledSidecar({
      clock: ofHost,
      http: transport.http,
      log: silentLog,
      engineOrigin: this.#engine.origin,
      blockSizeTokens: BLOCK_TOKENS,
      pollIntervalMs: 10,
      ranks: [out],
    })
    polled.start()
    this.#sidecar = {
      get isWhole() {
        return out.status()?.isWhole === true
      },
      close: async () => {
        // It may wait for an answer.
        transport.close()
        await polled.close()
        await out.close(0)
      },
    }
  }

  async stop(): Promise<void> {
    const closed = this.#sidecar?.close()
    this.#sidecar = undefined
    if (closed !== undefined) await this.#around.finish(closed)
  }

  async claims(): Promise<readonly Claim[]> {
    if (!this.isUp) return []
    const transport = this.#around.transport()
    const payloads: Uint8Array[] = []
    let isWhole = false
    const whole = Promise.withResolvers<void>()
    const endpoint = this.#around.places.sidecarReplay
    const dealer = transport.messages.dial({ endpoint }, frames => {
      const reply = parseSnapshotReply(frames)
      if (reply.kind !== 'part') return
      isWhole = reply.isWhole
      payloads.push(reply.payload)
      if (reply.part + 1 === reply.parts) whole.resolve()
    })
    dealer.send(snapshotRequestFrames())
    await this.#around.soon(whole.promise)
    dealer.close()
    transport.close()
    return [
      {
        who: 'sidecar',
        engine: this.#engine,
        trust: isWhole ? 'exact' : 'partial',
        reason: isWhole ? 'the snapshot is whole' : 'the snapshot is not whole',
        credited: creditedBy(payloads),
        knownForMs: block => this.signs.knownForMs(block),
        mistakenForMs: () => this.signs.mistakenForMs,
        hasPassed: this.signs.hasPassed,
        isLive: async () => true,
        unobservable: block => this.signs.unobservable(block),
        isDoubted: block => this.signs.isDoubted(block),
      },
    ]
  }
}

/** What the stores of a snapshot say. */
function creditedBy(payloads: readonly Uint8Array[]): readonly number[] {
  const letters = new Map<string, { readonly text: string; readonly salt: string | undefined }>()
  const told = new Set<string>()
  for (const payload of payloads) {
    for (const event of decodeKvBatch(payload).events) {
      if (event.kind !== 'stored' || event.attention === 'sliding_window') continue
      if (event.blockSizeTokens !== BLOCK_TOKENS) continue
      let above =
        event.parent === undefined ? { text: '', salt: event.cacheSalt } : letters.get(keyOf(event.parent, 0))
      for (let i = 0; i < event.hashes.length / 2 && above !== undefined; i++) {
        const letter = letterOf(event.tokens.subarray(i * BLOCK_TOKENS, (i + 1) * BLOCK_TOKENS))
        above = { text: above.text + letter, salt: above.salt }
        letters.set(keyOf(event.hashes, i), above)
        told.add(above.text + (above.salt === undefined ? '' : `+${above.salt}`))
      }
    }
  }
  return [...BLOCKS.keys()].filter(block => told.has(BLOCKS[block]!.name))
}

function letterOf(tokens: Int32Array): string {
  const letter = String.fromCharCode((tokens[0]! - 100) / BLOCK_TOKENS)
  return tokensOf(letter).every((token, i) => token === tokens[i]) ? letter : '?'
}

function keyOf(words: Int32Array, i: number): string {
  return `${words[2 * i]} ${words[2 * i + 1]}`
}
