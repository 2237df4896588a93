/**
 * Tracing: spans of requests for a collector, made and sent by OpenTelemetry's own packages. They are loaded
 * here, and only where --otlp-endpoint is given.
 *
 *   request ─▶ RequestSpans ─▶ ended span ─▶ waiting (bounded) ─▶ batch ─▶ collector
 *                                  │ no room                        │ refused, silent
 *                                  ▼                                ▼
 *                               dropped                           failed
 *
 * Requests never wait for it: a span that ends is put into a list. One batch at a time is sent; the exporter
 * gives up after EXPORT_MS_MAX, with its own retries in that time.
 *
 * Invariants
 *   I1  Exported, failed, dropped and waiting spans together are all spans that have ended and are sampled.
 *   I2  At most `queueMax` spans wait, those that are on their way included.
 *
 * Source: @opentelemetry/sdk-trace 3.1.
 */

import type { Clock, Log, Random } from '@homing/base'
import type { HttpExchange } from '@homing/transport'
import type { TextMapPropagator } from '@opentelemetry/api'
import type { ExportResult } from '@opentelemetry/core'
import type { ReadableSpan, SpanExporter, SpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import { RequestSpans, type SpanMaker } from './request-spans.ts'

export interface TracingArgs {
  /** Base URL of the collector. */
  readonly endpoint: string
  /** Share of the requests that are traced, 0 to 1; of those without a context, where that is a parent. */
  readonly sample: number
  /** What the context of a client is to the trace of its request; only a parent decides what is traced. */
  readonly context: 'link' | 'parent'
  /** Most spans that wait. */
  readonly queueMax: number
}

/** Since the start, and `waiting` now. */
export interface TraceFigures {
  readonly exported: number
  readonly failed: number
  readonly dropped: number
  readonly waiting: number
}

const PACKAGES = ['api', 'core', 'resources', 'sdk-trace', 'exporter-trace-otlp-http']
const BATCH_SPANS_MAX = 256
const BATCH_MS = 1000
const EXPORT_MS_MAX = 10_000
/** A collector that is silent must not keep the router from ending. */
const CLOSE_MS_MAX = 2000
/** What clients name is cut. */
const LIMITS = { attributeValueLengthLimit: 256, attributeCountLimit: 48, eventCountLimit: 16 }

/** Undefined: the packages are there; else what to do. Loads them. */
export async function faultOfTracing(): Promise<string | undefined> {
  try {
    await load()
    return undefined
  } catch {
    const names = PACKAGES.map(name => `@opentelemetry/${name}`).join(' ')
    return `needs packages that are not installed beside homing: npm install ${names}; or leave it out, and OTEL_EXPORTER_OTLP_ENDPOINT unset`
  }
}

export class Tracing {
  readonly #parts: TracingParts
  readonly #provider: TracerProvider
  readonly #maker: SpanMaker
  readonly #counts: { exported: number; failed: number; dropped: number; waiting: number }

  private constructor(
    parts: TracingParts,
    provider: TracerProvider,
    maker: SpanMaker,
    counts: Tracing['figures'],
  ) {
    this.#parts = parts
    this.#provider = provider
    this.#maker = maker
    this.#counts = counts
  }

  /** Rejects if the packages are not there. */
  static async open(args: TracingArgs, parts: TracingParts): Promise<Tracing> {
    const { api, core, resources, sdk, otlp } = await load()
    const counts = { exported: 0, failed: 0, dropped: 0, waiting: 0 }
    const exporter = new otlp.OTLPTraceExporter({
      url: `${args.endpoint.replace(/\/+$/, '')}/v1/traces`,
      timeoutMillis: EXPORT_MS_MAX,
      // At the end all that waits goes at one time.
      concurrencyLimit: Math.ceil(args.queueMax / BATCH_SPANS_MAX) + 1,
    })
    const batches = new sdk.BatchSpanProcessor({
      exporter: countedExporter(exporter, counts, parts.log),
      maxQueueSize: args.queueMax,
      maxExportBatchSize: BATCH_SPANS_MAX,
      scheduledDelayMillis: BATCH_MS,
      // The exporter ends by itself, and its end is counted.
      exportTimeoutMillis: 3 * EXPORT_MS_MAX,
    })
    const hex = (bytes: number): string => Buffer.from(parts.random.bytes(bytes)).toString('hex')
    const provider = new sdk.TracerProvider({
      // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come after ours.
      resource: resources
        .resourceFromAttributes({ 'service.name': 'homing' })
        .merge(resources.detectResources({ detectors: [resources.envDetector] })),
      sampler: new sdk.ParentBasedSampler({ root: new sdk.TraceIdRatioBasedSampler(args.sample) }),
      idGenerator: { generateTraceId: () => hex(16), generateSpanId: () => hex(8) },
      spanLimits: LIMITS,
      spanProcessors: [boundedProcessor(batches, counts, args.queueMax)],
    })
    const propagator: TextMapPropagator = new core.W3CTraceContextPropagator()
    const maker: SpanMaker = {
      tracer: provider.getTracer('homing'),
      inside: span => api.trace.setSpan(api.ROOT_CONTEXT, span),
      outside(headers) {
        const theirs = propagator.extract(api.ROOT_CONTEXT, headers, api.defaultTextMapGetter)
        if (args.context === 'parent') return { parent: theirs, links: [] }
        const linked = api.trace.getSpanContext(theirs)
        return { parent: api.ROOT_CONTEXT, links: linked === undefined ? [] : [{ context: linked }] }
      },
      headersOf(context) {
        const headers: Record<string, string> = {}
        propagator.inject(context, headers, api.defaultTextMapSetter)
        return headers
      },
    }
    return new Tracing(parts, provider, maker, counts)
  }

  get figures(): TraceFigures {
    return this.#counts
  }

  begin(http: HttpExchange, route: string): RequestSpans {
    return new RequestSpans(this.#maker, this.#parts.clock, http, route)
  }

  /** Sends what waits. Resolves when that has gone, or after CLOSE_MS_MAX. Never rejects. */
  async close(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = this.#parts.clock.after(CLOSE_MS_MAX, resolve, { unref: true })
    // What could not be sent is counted.
    await Promise.race([this.#provider.shutdown().catch(() => {}), promise])
    timer.cancel()
  }
}

export interface TracingParts {
  readonly clock: Clock
  readonly random: Pick<Random, 'bytes'>
  readonly log: Pick<Log, 'info' | 'warn'>
}

type Counts = { exported: number; failed: number; dropped: number; waiting: number }

async function load() {
  const [api, core, resources, sdk, otlp] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/core'),
    import('@opentelemetry/resources'),
    import('@opentelemetry/sdk-trace'),
    import('@opentelemetry/exporter-trace-otlp-http'),
  ])
  return { api, core, resources, sdk, otlp }
}

/** Logs once that spans cannot be sent, and once that they can be again. */
function countedExporter(inner: SpanExporter, counts: Counts, log: TracingParts['log']): SpanExporter {
  let isBroken = false
  const over = (spans: number, { code, error }: ExportResult): void => {
    counts.waiting -= spans
    counts[code === 0 ? 'exported' : 'failed'] += spans
    if ((code !== 0) === isBroken) return
    isBroken = code !== 0
    if (isBroken) log.warn({ reason: error?.message ?? 'unknown' }, 'spans cannot be sent to the collector')
    else log.info({ failedSpans: counts.failed }, 'spans are sent to the collector again')
  }
  return {
    export(spans, done) {
      inner.export(spans, result => {
        over(spans.length, result)
        done(result)
      })
    },
    shutdown: () => inner.shutdown(),
    forceFlush: async () => inner.forceFlush?.(),
  }
}

/** Lets a span pass to `inner` only where there is room for it. */
function boundedProcessor(inner: SpanProcessor, counts: Counts, queueMax: number): SpanProcessor {
  return {
    onStart() {},
    onEnd(span: ReadableSpan) {
      if ((span.spanContext().traceFlags & 1) === 0) return
      if (counts.waiting >= queueMax) {
        counts.dropped++
        return
      }
      counts.waiting++
      inner.onEnd(span)
    },
    forceFlush: () => inner.forceFlush(),
    shutdown: () => inner.shutdown(),
  }
}
