/** Workers of token ids for tests: what they say is scripted, and what they are asked is kept. */

import { PromptTokenizer } from '@homing/tokenization'
import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import {
  type GivenOutput,
  type RunningWorker,
  serveTokens,
  type TokenRequest,
  type WorkerOptions,
} from '@homing/worker'
import type { Test } from 'tap'
import { RouterClient, startTestRouter, TINY_TOKENIZER, until } from './fleet.ts'

export const MODEL = 'toy'
/** The end of an answer, `<|im_end|>`. */
export const END_ID = 1458

/** What a worker answers to a request; the member `seed` of the request says which. */
export interface Script {
  readonly ids: readonly number[]
  /** Stops before these outputs until `go` is called; default: never. */
  readonly holdsAt?: number | readonly number[]
  /** Throws there. */
  readonly failsAt?: number
  readonly failure?: Error
  /** Ids in each output; default 1. */
  readonly pieceTokens?: number
  /** Begins anew at its end. */
  readonly isEndless?: boolean
}

/** A scripted worker, of whatever language. */
export interface Scripted {
  readonly requests: readonly TokenRequest[]
  /** Requests whose clients left. */
  readonly cancelled: number
  /** Generators that have ended, in whatever way. */
  readonly ended: number
  /** Those that stop. */
  readonly held: number
  /** Lets those go on that stop. */
  go(): void
}

export interface StartedWorker {
  readonly worker: Scripted
  readonly url: string
  openRequests(): number | Promise<number>
  close(graceMs: number): Promise<void>
  /** As abruptly as its language allows. */
  die(): Promise<void>
}

/** Starts a worker that runs until the test ends. */
export type StartScripted = (
  t: Test,
  scripts: readonly Script[],
  options: WorkerPlace,
) => Promise<StartedWorker>

/** Which way requests come, and how long an answer may be. */
export type WorkerPlace = Pick<
  WorkerOptions,
  'requestPlane' | 'nats' | 'etcd' | 'namespace' | 'port' | 'contextLength'
>

export class ScriptedWorker implements Scripted {
  readonly requests: TokenRequest[] = []
  readonly scripts: readonly Script[]
  cancelled = 0
  ended = 0
  running: RunningWorker | undefined
  readonly #gates: (() => void)[] = []

  constructor(scripts: readonly Script[]) {
    this.scripts = scripts
  }

  async start(options: Partial<WorkerOptions>): Promise<RunningWorker> {
    this.running = await serveTokens({
      model: MODEL,
      modelPath: TINY_TOKENIZER,
      contextLength: 4096,
      generate: (request, { signal }) => this.#generate(request, signal),
      ...options,
    })
    return this.running
  }

  go(): void {
    for (const gate of this.#gates.splice(0)) gate()
  }

  get held(): number {
    return this.#gates.length
  }

  async *#generate(request: TokenRequest, signal: AbortSignal): AsyncGenerator<GivenOutput> {
    this.requests.push(request)
    signal.addEventListener('abort', () => this.cancelled++)
    const {
      ids,
      holdsAt,
      failsAt,
      failure,
      pieceTokens = 1,
      isEndless = false,
    } = this.scripts[Number(request.samplingOptions['seed'] ?? 0)]!
    try {
      for (let at = request.resumedTokens; at < ids.length; at += pieceTokens) {
        if (failsAt !== undefined && at >= failsAt) throw failure ?? new Error('out of memory')
        if ([holdsAt].flat().includes(at)) await new Promise<void>(resolve => this.#gates.push(resolve))
        const piece = ids.slice(at, at + pieceTokens)
        yield pieceTokens === 1 ? piece[0]! : piece
        if (isEndless && at + pieceTokens >= ids.length) at = -pieceTokens
      }
    } finally {
      this.ended++
    }
  }
}

let tokenizer: Promise<PromptTokenizer> | undefined

/** Ids of a text, by the model's tokenizer. */
export async function idsOf(text: string): Promise<readonly number[]> {
  tokenizer ??= PromptTokenizer.load(TINY_TOKENIZER)
  return [...(await tokenizer).encodeText(text)]
}

/** Ids of the prompt that the router makes of a chat. */
export async function chatIdsOf(messages: readonly object[]): Promise<readonly number[]> {
  tokenizer ??= PromptTokenizer.load(TINY_TOKENIZER)
  const encoded = (await tokenizer).encodeChat({ model: MODEL, messages })
  if (encoded.kind !== 'tokens') throw new Error(encoded.reason)
  return [...encoded.tokens]
}

export const PLANES = ['http', 'tcp', 'nats'] as const
export type Plane = (typeof PLANES)[number]

/** Names workers that listen nowhere. */
let port = 40_000

/** A broker of its own. */
export async function broker(t: Test): Promise<NatsServer> {
  const nats = await NatsServer.start({})
  t.teardown(() => nats.stop())
  return nats
}

/** Options by which a worker takes requests over this plane. */
export function over(plane: Plane, nats: NatsServer | undefined): WorkerPlace {
  if (plane !== 'nats') return { requestPlane: plane }
  // There it is found by its registration alone.
  return { requestPlane: plane, nats: [nats!.address], namespace: 'test', port: ++port }
}

/** A worker that runs until the test ends. */
export async function workerOf(t: Test, scripts: readonly Script[], options: Partial<WorkerOptions>) {
  const worker = new ScriptedWorker(scripts)
  const running = await worker.start(options)
  t.teardown(() => running.close())
  return { worker, running }
}

/** In this process, by @homing/worker. */
export const startInProcess: StartScripted = async (t, scripts, options) => {
  const { worker, running } = await workerOf(t, scripts, options)
  return {
    worker,
    url: running.url,
    openRequests: () => running.openRequests,
    close: graceMs => running.close(graceMs),
    die: () => running.close(0),
  }
}

/** A router over these workers, all of which are up. */
export async function routerOver(
  t: Test,
  plane: Plane,
  workers: readonly Pick<StartedWorker, 'url'>[],
  nats: NatsServer | undefined,
  argv: readonly string[] = [],
): Promise<RouterClient> {
  const ofBroker = nats === undefined ? [] : ['--nats', nats.address, '--worker-namespace', 'test']
  const urls = plane === 'nats' ? [] : workers.map(({ url }) => url)
  const router = await startTestRouter(urls, ['--request-plane', plane, ...ofBroker, ...argv])
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  await until('all workers are up', async () =>
    (await client.workers()).filter(({ state }) => state === 'up').length === workers.length
      ? true
      : undefined,
  )
  return client
}

/** A test under `root` for every plane, with the broker that it needs. */
export function overEachPlane(
  root: Test,
  title: string,
  run: (t: Test, plane: Plane, nats: NatsServer | undefined) => Promise<void>,
  skipOf: (plane: Plane) => string | false = () => false,
) {
  for (const plane of PLANES) {
    const skip = skipOf(plane) || (plane === 'nats' && NO_NATS_SERVER)
    root.test(`${title}, over ${plane}`, { skip }, async t =>
      run(t, plane, plane === 'nats' ? await broker(t) : undefined),
    )
  }
}
