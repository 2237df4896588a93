/**
 * Trace source: requests of a file or of a generator of packages/trace.
 *
 * Bodies are sent as they are. Where a line has lengths and ids of blocks only, words stand for its tokens:
 * those of a block are a function of its id, so prompts begin alike as far as their ids do.
 *
 * A file is read anew for each block, from its start: memory holds a line, however long it is. A decision log
 * is read whole, since its lines are in the order of their ends.
 */

import {
  generatedRequests,
  isBodyFile,
  isDecisionLog,
  type LoggedBody,
  openBodies,
  openTrace,
  parseGenerator,
  readDecisionLog,
  TRACE_BLOCK_TOKENS,
  type TraceRequest,
} from '@homing/trace'
import { type Endpoint, type LoadRequest, type RequestSource, salted } from './load-request.ts'
import { numberedText } from './words.ts'

export interface TraceSourceOptions {
  /** Of requests that are no bodies. */
  readonly endpoint: Endpoint
  readonly seed: number
  /** Where the trace does not say it. */
  readonly outputTokens: number
  readonly ignoresEos: boolean
  /** Number of requests to take, from the first. */
  readonly requestsMax: number
  /** Only those so long after the first, by the times of the trace. */
  readonly spanMsMax: number
}

const GENERATOR = 'generator:'

/** Rejects with UnreadableTraceError, MalformedTraceError and BadGeneratorError. */
export async function traceSource(text: string, options: TraceSourceOptions): Promise<RequestSource> {
  const { open, kind } = await requestsIn(text, options)
  let count = 0
  let hasTimes = true
  for await (const { atMs } of within(open(), options)) {
    count++
    hasTimes = atMs !== undefined
  }
  return {
    description: `${kind} ${text}, ${count} requests`,
    hasTimes,
    count,
    async *block(block, blocks) {
      const size = Math.floor(count / blocks)
      let number = 0
      for await (const request of within(open(), options)) {
        if (number >= (block + 1) * size) return
        if (number >= block * size) yield request
        number++
      }
    },
  }
}

async function* within(
  requests: AsyncIterable<LoadRequest> | Iterable<LoadRequest>,
  { requestsMax, spanMsMax }: TraceSourceOptions,
): AsyncGenerator<LoadRequest> {
  let number = 0
  let firstMs: number | undefined
  for await (const request of requests) {
    firstMs ??= request.atMs
    if (number++ >= requestsMax || (request.atMs ?? 0) - (firstMs ?? 0) > spanMsMax) return
    yield request
  }
}

type Requests = AsyncIterable<LoadRequest> | Iterable<LoadRequest>

async function requestsIn(
  text: string,
  options: TraceSourceOptions,
): Promise<{ readonly open: () => Requests; readonly kind: string }> {
  if (text.startsWith(GENERATOR)) {
    const spec = parseGenerator(text.slice(GENERATOR.length))
    return {
      kind: 'traffic of',
      open: () => mapped(generatedRequests(spec, options.seed), tracedRequest(options, TRACE_BLOCK_TOKENS)),
    }
  }
  if (await isDecisionLog(text)) {
    const { requests } = await readDecisionLog([text])
    return {
      kind: 'decision log',
      open: () =>
        mapped(requests, (request, number) => tracedRequest(options, request.blockTokens)(request, number)),
    }
  }
  if (await isBodyFile(text)) return { kind: 'bodies of', open: () => mapped(openBodies(text), bodyRequest) }
  return {
    kind: 'trace',
    open: () => mapped(openTrace(text), tracedRequest(options, TRACE_BLOCK_TOKENS)),
  }
}

async function* mapped<T>(
  items: AsyncIterable<T> | Iterable<T>,
  of: (item: T, number: number) => LoadRequest,
): AsyncGenerator<LoadRequest> {
  let number = 0
  for await (const item of items) yield of(item, number++)
}

function bodyRequest({ timestampMs, endpoint, body }: LoggedBody): LoadRequest {
  return { atMs: timestampMs, endpoint, body: salt => salted(body, salt) }
}

type Traced = Pick<TraceRequest, 'timestampMs' | 'inputTokens' | 'outputTokens' | 'hashIds'>

function tracedRequest(
  { endpoint, outputTokens: outputTokensUnset, ignoresEos }: TraceSourceOptions,
  blockTokens: number,
): (request: Traced, number: number) => LoadRequest {
  return ({ timestampMs, inputTokens, outputTokens, hashIds }, number) => ({
    atMs: timestampMs,
    endpoint,
    body(salt) {
      const text = textOf(hashIds, inputTokens, blockTokens, number)
      return salted(
        {
          ...(endpoint === 'chat' ? { messages: [{ role: 'user', content: text }] } : { prompt: text }),
          max_tokens: outputTokens > 0 ? outputTokens : outputTokensUnset,
          ...(ignoresEos && { ignore_eos: true }),
        },
        salt,
      )
    },
  })
}

/** A part that has no id occurs once: it is of this request alone. */
function textOf(ids: ArrayLike<number>, tokens: number, blockTokens: number, number: number): string {
  const parts: string[] = []
  for (let at = 0, i = 0; at < tokens; at += blockTokens, i++) {
    const id = i < ids.length ? ids[i]! : Number.MAX_SAFE_INTEGER - number
    parts.push(numberedText(id, Math.min(blockTokens, tokens - at)))
  }
  return parts.length === 0 ? numberedText(Number.MAX_SAFE_INTEGER - number, 1) : parts.join(' ')
}
