/** Options of a worker, their defaults, and what is wrong with them. */

import { hostname } from 'node:os'
import type { Log } from '@homing/base'
import type { TokenRequest } from '@homing/protocol'
import { BadWorkerOptionError } from './errors.ts'

/** What a program gives: one id, several, or several with what else there is to say. */
export type GivenOutput =
  | number
  | readonly number[]
  | {
      readonly tokenIds: readonly number[]
      /** `stop`, `length`, or another word: nothing follows. Default: the answer goes on. */
      readonly finishReason?: string | undefined
      /** Tokens of the prompt that were cached; once is enough. */
      readonly cachedTokens?: number | undefined
    }

/**
 * Generates the tokens behind `request.tokenIds`. `signal` aborts when no client waits for them any more: the
 * program may then stop, and is stopped at its next output. A return without a finish reason is `stop`, or
 * `length` where there are as many tokens as were asked for.
 */
export type GenerateTokens = (
  request: TokenRequest,
  context: { readonly signal: AbortSignal },
) => AsyncIterable<GivenOutput>

export interface WorkerOptions {
  readonly generate: GenerateTokens
  /** The name that requests use. */
  readonly model: string
  /**
   * The directory of its tokenizer, as the router's machine sees it. Default: the router is told by
   * `--tokenizer MODEL=DIRECTORY`.
   */
  readonly modelPath?: string | undefined
  /** Tokens of prompt and answer together; default: not known, and the worker alone ends long answers. */
  readonly contextLength?: number | undefined
  /** Tokens in a block of its KV cache; default 16. */
  readonly blockSize?: number | undefined
  /** Blocks of its KV cache. */
  readonly kvBlocks?: number | undefined
  /** Ports of its KV events (@homing/publisher), on the advertised host. */
  readonly eventsPort?: number | undefined
  readonly replayPort?: number | undefined
  /** Instead of ports: SUBJECT at the broker of the router; its KV events are published under SUBJECT.0. */
  readonly eventsSubject?: string | undefined
  /**
   * Which way requests come: `http` (default) and `tcp` listen at `host` and `port`; `nats` takes them at the
   * broker of `nats`.
   */
  readonly requestPlane?: 'http' | 'tcp' | 'nats' | undefined
  /** Default 127.0.0.1. */
  readonly host?: string | undefined
  /** 0, the default: any free one. With `nats` it only names the worker: nothing listens there. */
  readonly port?: number | undefined
  /** The host by which routers reach it; default: `host`, or the name of this machine. */
  readonly advertisedHost?: string | undefined
  /** Registers the worker at this broker: routers with `--nats` take it. 'nats://10.0.0.9:4222' each. */
  readonly nats?: readonly string[] | undefined
  /** …or at this etcd: routers with `--discovery-backend etcd` take it. */
  readonly etcd?: readonly string[] | undefined
  readonly namespace?: string | undefined
  /** Requests that are served at one time; more are answered with 503. Default 256. */
  readonly requestsMax?: number | undefined
  /** Default 64 MiB: prompts of some 6 million tokens. */
  readonly bodyBytesMax?: number | undefined
  /** Default: no log. */
  readonly log?: Pick<Log, 'warn'> | undefined
}

export interface WorkerSettings {
  readonly plane: 'http' | 'tcp' | 'nats'
  readonly host: string
  readonly port: number
  readonly advertisedHost: string
  readonly requestsMax: number
  readonly bodyBytesMax: number
  /** Of the URL by which routers know it. */
  readonly query: URLSearchParams
}

const WILDCARDS = new Set(['0.0.0.0', '::', '[::]'])
const PORT_MAX = 65_535
const COUNT_MAX = 2 ** 31 - 1
const MODEL_NAME_LENGTH_MAX = 1024

/** Throws BadWorkerOptionError. */
export function workerSettings(options: WorkerOptions): WorkerSettings {
  const { requestPlane: plane = 'http', host = '127.0.0.1', model, generate, nats = [] } = options
  if (typeof generate !== 'function')
    throw new BadWorkerOptionError('generate', String(generate), 'an async generator function')
  if (typeof model !== 'string' || model === '' || model.length > MODEL_NAME_LENGTH_MAX)
    throw new BadWorkerOptionError(
      'model',
      String(model),
      `a name of 1 to ${MODEL_NAME_LENGTH_MAX} characters`,
    )
  if (!['http', 'tcp', 'nats'].includes(plane))
    throw new BadWorkerOptionError('requestPlane', String(plane), 'http, tcp or nats')
  if (plane === 'nats' && nats.length === 0)
    throw new BadWorkerOptionError('requestPlane', plane, 'it with nats, the addresses of the broker')
  if (plane === 'nats' && (options.port ?? 0) === 0)
    throw new BadWorkerOptionError(
      'port',
      String(options.port),
      `a number from 1 to ${PORT_MAX} that no other worker of its host has: with nats it only names the worker`,
    )
  whole('contextLength', options.contextLength, 1, COUNT_MAX)
  const query = new URLSearchParams()
  const put = (name: string, option: string, value: number | undefined, max: number): void => {
    if (whole(option, value, 1, max) !== undefined) query.set(name, String(value))
  }
  put('block_size', 'blockSize', options.blockSize ?? 16, 65_536)
  put('kv_blocks', 'kvBlocks', options.kvBlocks, COUNT_MAX)
  put('events', 'eventsPort', options.eventsPort, PORT_MAX)
  put('replay', 'replayPort', options.replayPort, PORT_MAX)
  if (options.eventsSubject !== undefined) query.set('nats', options.eventsSubject)
  return {
    plane,
    host,
    port: whole('port', options.port, 0, PORT_MAX) ?? 0,
    advertisedHost: options.advertisedHost ?? (WILDCARDS.has(host) ? hostname() : host),
    requestsMax: whole('requestsMax', options.requestsMax, 1, 1_000_000) ?? 256,
    bodyBytesMax: whole('bodyBytesMax', options.bodyBytesMax, 1, 2 ** 30) ?? 64 * 2 ** 20,
    query,
  }
}

function whole(option: string, value: number | undefined, min: number, max: number): number | undefined {
  if (value === undefined || (Number.isSafeInteger(value) && value >= min && value <= max)) return value
  throw new BadWorkerOptionError(option, String(value), `a whole number from ${min} to ${max}`)
}
