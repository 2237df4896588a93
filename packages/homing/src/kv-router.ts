/**
 * KvRouter: the router inside a program, without a port.
 *
 *   program ─▶ KvRouter ─┬─ generate ─────────▶ gateway, over a listener in memory: as a client's completion
 *                        ├─ best worker, loads, free ─▶ gateway, by messages
 *                        └─ dumped events, workers ───▶ indexers, directory
 *
 * It owns nothing but the actors that it has started, which are those of `homing router`: what it decides,
 * books and frees, they do. Several may run in one process; closing one leaves the others as they are.
 *
 * All calls reject with errors that have a `code` (docs/errors.md), after `close` with KvRouterClosedError.
 */

import type { OpenDump, ProgramPrompt } from '@homing/actors/console'
import type { RouterParts } from '@homing/actors/guardian'
import { createLog, fromErrorRecord, systemClock } from '@homing/base'
import type { WorkerKeyRecord, WorkerRecord } from '@homing/fleet'
import type { Transport } from '@homing/transport'
import { GenerateStream } from './generate-stream.ts'
import { BadOptionError, DumpTooLargeError, KvRouterClosedError } from './kv-router-errors.ts'
import {
  assertObject,
  assertStart,
  type BestWorkerOptions,
  type GenerateRequest,
  generateBody,
  type PromptOptions,
  promptOf,
  type TokenIds,
} from './kv-router-options.ts'
import type { GivenRouterSettings } from './start-router.ts'
import type { StopReport } from './stop-service.ts'

/** Settings that need a port. */
const OF_PORTS = [
  'host',
  'port',
  'adminPort',
  'metricsPort',
  'gatewayThreads',
  'pickerPort',
  'pickerHealthPort',
  'pickerTls',
  'pickerFallbacks',
  'pickerConformance',
  'frontend',
  'tlsCertificateFile',
  'tlsKeyFile',
  'clientKeysFile',
] as const

/** Those of `startRouter` without ports, and the model of calls that name none. */
export type GivenKvRouterSettings = Omit<GivenRouterSettings, (typeof OF_PORTS)[number]> & {
  readonly model?: string | undefined
}

/** `workerId`, `dpRank`, and blocks of the prompt that the worker is believed to hold, 0 … all full ones. */
export type BestWorker = readonly [workerId: number, dpRank: number, overlapBlocks: number]

/** Load of one worker key, with the prompt that was asked about. */
export interface PotentialLoad {
  readonly workerId: number
  readonly dpRank: number
  /** Tokens that wait for prefill there, with those of the prompt that it does not hold. */
  readonly potentialPrefillTokens: number
  /** Blocks in use there, with those of the prompt that would be new. */
  readonly potentialDecodeBlocks: number
  /** Requests there, without this one. */
  readonly activeRequests: number
}

/** What the index knows of a prompt at one worker key. */
export interface PrefixOverlap {
  readonly workerId: number
  readonly dpRank: number
  /** Leading blocks of the prompt, at least 1. */
  readonly overlapBlocks: number
  /** Blocks that it holds with an expert of the `moeQuery`; 0 without one. */
  readonly moeScore: number
  /** The part of `overlapBlocks` that it reaches in pooled memory alone. */
  readonly cxlAccessibleScore: number
}

/** One worker key of the fleet. */
export interface KvRouterWorker {
  readonly workerId: number
  readonly dpRank: number
  /** Worker key, as receipts and `generate` name it. */
  readonly worker: string
  /** Base URL. */
  readonly url: string
  readonly state: WorkerRecord['state']
  readonly trust: WorkerKeyRecord['trust']
  readonly models: readonly string[]
}

/** Longer than the gateway's own limits for reading, choosing and booking together. */
const PROMPT_MS_MAX = 120_000
const VIEW_MS_MAX = 10_000
const utf8 = new TextDecoder()
/** Half of what V8 can hold in one text. */
const DUMP_CHARACTERS_MAX = 256 * 1024 * 1024

interface Inside {
  readonly parts: RouterParts
  /** The client's side of the listener in memory. */
  readonly client: Transport
  readonly origin: string
  readonly whenFailed: Promise<string>
  readonly model: string | undefined
  readonly stop: (graceMs?: number) => Promise<StopReport>
}

export class KvRouter {
  readonly #inside: Inside
  #closing: Promise<StopReport> | undefined
  /** One dump at a time, as at the operator route; undefined: there was none yet. */
  #openDump: OpenDump | undefined

  /**
   * Starts a router in this process and resolves when it routes: each worker was probed once. Rejects with
   * SettingsError for all that is wrong with the settings at once, and as `startRouter` does.
   */
  static async start(settings: GivenKvRouterSettings): Promise<KvRouter> {
    assertStart(settings)
    const { model, ...given } = settings
    const { COMMAND_LINE_ONLY, routerSettingsOf, serveRouter } = await import('./start-router.ts')
    const complete = routerSettingsOf(given, [...COMMAND_LINE_ONLY, ...OF_PORTS])
    const { MemoryNetwork, systemTransport, transportCapability } = await import('@homing/transport')
    const sockets = systemTransport({
      clock: systemClock,
      log: createLog(complete.logLevel, {}, complete.logFormat),
    })
    const network = new MemoryNetwork({ clock: systemClock })
    const server = network.transport()
    const client = network.transport()
    const transport: Transport = { ...sockets, http: { ...sockets.http, listen: server.http.listen } }
    const end = (): void => {
      for (const one of [client, server, sockets]) one.close()
    }
    try {
      const inside = { ...complete, host: '127.0.0.1', port: 0 }
      const router = await serveRouter(inside, [[transportCapability, transport]])
      const parts = await router.guardian.ask({ type: 'parts' }, { timeout: VIEW_MS_MAX })
      return new KvRouter({
        parts,
        client,
        origin: router.url,
        whenFailed: router.whenFailed,
        model,
        stop: graceMs => router.stop(graceMs).finally(end),
      })
    } catch (thrown) {
      end()
      throw thrown
    }
  }

  /** Use `KvRouter.start`. */
  private constructor(inside: Inside) {
    this.#inside = inside
  }

  /** Resolves with the reason when the router cannot go on by itself; pending while it works. */
  get whenFailed(): Promise<string> {
    return this.#inside.whenFailed
  }

  /**
   * Chooses a worker, sends it the prompt and gives its tokens as they come. Load is booked, and freed at the
   * end, whatever that is. Another worker is tried if the first fails before its first token. The request
   * begins at once. Throws BadOptionError for members that do not exist and ids that are none; all else is
   * thrown by the iteration (see `GenerateStream.next`).
   */
  generate(request: GenerateRequest): GenerateStream {
    this.#assertOpen('generate')
    const { client, origin, model } = this.#inside
    const body = generateBody(request, model)
    return new GenerateStream(
      handler =>
        client.http.call(
          {
            origin,
            method: 'POST',
            path: '/v1/completions',
            headers: { 'content-type': 'application/json' },
            body,
          },
          handler,
        ),
      request.signal,
    )
  }

  /**
   * The worker that the router would choose. With a `requestId` the request is booked there and counts as
   * load: call `markPrefillComplete` at its first token and `free` at its end. One without a sign of life for
   * `activeRequestExpiryMs` (default 300 s) is freed by itself. Without a `requestId` nothing changes.
   *
   * Rejects with BadOptionError; HOMING_OPENAI_INVALID_REQUEST for an override out of range;
   * HOMING_GATEWAY_BAD_RESERVATION_ID for an id that is no text of 1 … 256 characters;
   * HOMING_GATEWAY_RESERVATION_EXISTS for an id that is booked; HOMING_GATEWAY_RESERVATION_CANCELLED if it
   * was freed meanwhile; HOMING_GATEWAY_TOO_MANY_RESERVATIONS; HOMING_ROUTER_ALL_BUSY and other
   * HOMING_ROUTER_… codes if no worker can take it.
   */
  async bestWorker(tokens: TokenIds, options: BestWorkerOptions = {}): Promise<BestWorker> {
    const prompt = this.#promptOf('choose a worker', tokens, options)
    const ask = { type: 'bestWorker', prompt, id: options.requestId } as const
    const best = await this.#inside.parts.gateway.ask(ask, { timeout: PROMPT_MS_MAX })
    if ('code' in best) throw fromErrorRecord(best)
    return [best.instanceId, best.dpRank, best.overlapBlocks]
  }

  /**
   * As `bestWorker`, without the rank.
   *
   * @deprecated A worker with several ranks needs the rank: use `bestWorker`.
   */
  async bestWorkerId(
    tokens: TokenIds,
    options: BestWorkerOptions = {},
  ): Promise<readonly [workerId: number, overlapBlocks: number]> {
    const [workerId, , overlapBlocks] = await this.bestWorker(tokens, options)
    return [workerId, overlapBlocks]
  }

  /**
   * A row for each worker key that serves the model and is up, also for those that are busy or ejected.
   * Changes nothing.
   */
  async getPotentialLoads(tokens: TokenIds, options: PromptOptions = {}): Promise<readonly PotentialLoad[]> {
    const rows = await this.#loads('look at loads', tokens, options)
    return rows.map(
      ({ instanceId, dpRank, potentialPrefillTokens, potentialDecodeBlocks, activeRequests }) => ({
        workerId: instanceId,
        dpRank,
        potentialPrefillTokens,
        potentialDecodeBlocks,
        activeRequests,
      }),
    )
  }

  /** Which worker keys hold a beginning of the prompt, the longest first. Changes nothing. */
  async findMatchesForRequest(
    tokens: TokenIds,
    options: PromptOptions = {},
  ): Promise<readonly PrefixOverlap[]> {
    const rows = await this.#loads('look for matches', tokens, options)
    return rows
      .filter(({ overlapBlocks }) => overlapBlocks > 0)
      .map(({ instanceId, dpRank, overlapBlocks, moeScore, cxlAccessibleScore }) => ({
        workerId: instanceId,
        dpRank,
        overlapBlocks,
        moeScore,
        cxlAccessibleScore,
      }))
      .sort((a, b) => b.overlapBlocks - a.overlapBlocks)
  }

  /**
   * The first token of a request that `bestWorker` has booked has come: its prompt is no load any more.
   * Repeated, it says that the request is alive. Rejects with HOMING_GATEWAY_RESERVATION_UNKNOWN if it is not
   * booked.
   */
  async markPrefillComplete(requestId: string): Promise<void> {
    this.#assertOpen('mark the prefill as complete')
    const ask = { type: 'reservedPrefilled', id: requestId } as const
    const error = await this.#inside.parts.gateway.ask(ask, { timeout: PROMPT_MS_MAX })
    if (error !== undefined) throw fromErrorRecord(error)
  }

  /**
   * A request that `bestWorker` has booked has ended. Its id may be used again. Rejects with
   * HOMING_GATEWAY_RESERVATION_UNKNOWN if it is not booked: never, not any more, or it has expired.
   */
  async free(requestId: string): Promise<void> {
    this.#assertOpen('free a request')
    const ask = { type: 'freeReserved', id: requestId } as const
    const error = await this.#inside.parts.gateway.ask(ask, { timeout: PROMPT_MS_MAX })
    if (error !== undefined) throw fromErrorRecord(error)
  }

  /**
   * The index as a JSON list of router events: `stored`, parents before children, which give the same
   * overlaps when they are played into an empty index, with the labels of their blocks; and
   * `cxl_state_transition` for blocks in pools that their worker does not hold itself. Hashes and worker ids
   * are written as whole numbers up to 2^64 − 1, which `JSON.parse` rounds. Of the blocks that workers hold
   * only those on the device. Rejects with DumpTooLargeError past 256 MiB, and as
   * `dumpEventPieces` does.
   */
  async dumpEvents(): Promise<string> {
    let text = ''
    for await (const piece of this.dumpEventPieces()) {
      text += piece
      if (text.length > DUMP_CHARACTERS_MAX) throw new DumpTooLargeError(DUMP_CHARACTERS_MAX)
    }
    return text
  }

  /**
   * The text of `dumpEvents` in pieces, of at most 1,024 blocks that a worker holds, or some 8,000 in pools.
   * One dump is made at a time; leaving the loop ends it.
   *
   * Rejects with HOMING_HTTP_DUMPS_BUSY if four others wait, or this one has waited 20 s; with
   * HOMING_CONSOLE_DUMP_CUT if its last piece was taken more than 30 s ago, its first more than 10 minutes.
   */
  async *dumpEventPieces(): AsyncGenerator<string, void, undefined> {
    const act = 'dump the events'
    this.#assertOpen(act)
    const { eventPieces, OpenDump } = await import('@homing/actors/console')
    const { directory, indexers } = this.#inside.parts
    this.#openDump ??= new OpenDump(systemClock)
    const open = this.#openDump
    const number = await open.begin(() => eventPieces({ directory, indexers, askMsMax: VIEW_MS_MAX }))
    try {
      for (;;) {
        this.#assertOpen(act)
        const { bytes, isLast } = await open.next(number)
        if (isLast) return
        yield utf8.decode(bytes)
      }
    } finally {
      open.end(number)
    }
  }

  /** All worker keys as they are now: what `workerId` stands for, and where the worker is. */
  async workers(): Promise<readonly KvRouterWorker[]> {
    this.#assertOpen('list the workers')
    const ask = { type: 'describe' } as const
    const { fleet } = await this.#inside.parts.directory.ask(ask, { timeout: VIEW_MS_MAX })
    return fleet.workers.flatMap(({ instanceId, origin, state, models, keys }) =>
      keys.map(({ key, dpRank, trust }) => ({
        workerId: instanceId,
        dpRank,
        worker: key,
        url: origin,
        state,
        trust,
        models: models.map(({ name }) => name),
      })),
    )
  }

  /** The metrics of `homing router`, in Prometheus' text form. */
  async metrics(): Promise<string> {
    this.#assertOpen('read the metrics')
    const { client, origin } = this.#inside
    const request = { origin, method: 'GET', path: '/metrics' }
    const { body } = await client.http.fetch(request, { timeoutMs: VIEW_MS_MAX })
    return utf8.decode(body)
  }

  /**
   * Takes no more calls, lets what is being generated end for `graceMs` (default: the setting
   * `shutdownTimeoutMs`), stops all actors and threads. What is booked is freed. Idempotent.
   */
  close(graceMs?: number): Promise<StopReport> {
    if (graceMs !== undefined && !(Number.isFinite(graceMs) && graceMs >= 0))
      return Promise.reject(
        new BadOptionError('close', 'graceMs', `${String(graceMs)} is not a number from 0`),
      )
    this.#closing ??= this.#inside.stop(graceMs)
    return this.#closing
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  #promptOf(act: string, tokens: TokenIds, options: BestWorkerOptions, books = true): ProgramPrompt {
    this.#assertOpen(act)
    assertObject(act, 'options', options)
    return promptOf(act, tokens, { ...options, model: options.model ?? this.#inside.model }, books)
  }

  async #loads(act: string, tokens: TokenIds, options: PromptOptions) {
    const prompt = this.#promptOf(act, tokens, options, false)
    const ask = { type: 'potentialLoads', prompt } as const
    const rows = await this.#inside.parts.gateway.ask(ask, { timeout: PROMPT_MS_MAX })
    if ('code' in rows) throw fromErrorRecord(rows)
    return rows
  }

  #assertOpen(act: string): void {
    if (this.#closing !== undefined) throw new KvRouterClosedError(act)
  }
}
