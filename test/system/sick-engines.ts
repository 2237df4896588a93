/**
 * Sick engines: engines of which one has an illness, a load over each illness, and what clients got, how long
 * the sick one stayed in use, and how long it took to come back.
 *
 * Each illness has a model and three engines of its own, so one router can be given all of them. Real
 * sockets. The first engine becomes sick at a given moment and is cured at another.
 */

import dns from 'node:dns'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { type Certificate, certificate, expiredCertificate, tlsFront } from './certificates.ts'
import { RouterClient, startTestRouter, until } from './fleet.ts'

const ENGINES = 3
const CLIENTS = 4
/** How long a healthy engine takes; a stream sends its first token in half of it. */
const HEALTHY_MS = 60
const OUTPUT_EVENTS = 3
const BACK_MS_MAX = 60_000
const FIRST_SECOND_MS = 1000
const CLIENT_MS_MAX = 60_000

export interface Illness {
  readonly name: string
  /** Answers a request while it is sick. */
  readonly answer?: (engine: SickEngine, request: EngineRequest, response: ServerResponse) => void
  /** Clients ask for streams. */
  readonly isStream?: boolean
  /** Status of GET /health while it is sick. */
  readonly healthStatus?: number
  /** The names it lists while it is sick. */
  readonly models?: readonly string[]
  /** Every other request is for a second model, which it serves all the time. */
  readonly hasSecondModel?: boolean
  /** It is served by another name or through another server. */
  readonly front?: 'tls' | 'name'
  readonly begin?: (engine: SickEngine) => void | Promise<void>
  readonly end?: (engine: SickEngine) => void | Promise<void>
  /** It only takes longer: no request fails by it, so no router has to leave it. */
  readonly mayStay?: boolean
  /** A trial costs a client an answer, since what has been sent cannot be taken back. */
  readonly isSeenByClients?: boolean
}

export interface EngineRequest {
  readonly message: IncomingMessage
  readonly model: string
  readonly isStream: boolean
}

export interface Course {
  readonly illness: string
  readonly sent: number
  readonly failed: number
  /** Of those sent after the first second. */
  readonly sentLater: number
  readonly failedLater: number
  /** Requests that the sick engine got, of `sent`. */
  readonly gotSick: number
  /** From the beginning to the last request before it got trials only; undefined: it stayed in use. */
  readonly leftMs: number | undefined
  /** From the cure to the next answer that it gave. */
  readonly backMs: number
  /** What /workers said of it at the end of the illness. */
  readonly state: string
}

/** An engine that may be sick. */
export class SickEngine {
  readonly illness: Illness
  readonly model: string
  url = ''
  port = 0
  isSick = false
  /** By the clock: when requests of clients came. */
  readonly gotMs: number[] = []
  turn = 0
  readonly #server: Server
  #host = '127.0.0.1'
  tls: Awaited<ReturnType<typeof tlsFront>> | undefined

  constructor(illness: Illness, model: string) {
    this.illness = illness
    this.model = model
    this.#server = createServer((message, response) => this.#handle(message, response))
    this.#server.keepAliveTimeout = 60_000
  }

  async listen(host = this.#host): Promise<void> {
    this.#host = host
    this.#server.listen(this.port, host)
    await once(this.#server, 'listening')
    this.port = (this.#server.address() as AddressInfo).port
    if (this.url === '') this.url = `http://127.0.0.1:${this.port}`
  }

  /** Ends its connections, and takes no more. */
  async close(): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    this.#server.closeAllConnections()
    await closed
  }

  async stop(): Promise<void> {
    this.tls?.server.close()
    if (this.#server.listening) await this.close()
  }

  #handle(message: IncomingMessage, response: ServerResponse): void {
    const { illness } = this
    const parts: Buffer[] = []
    message.on('data', (bytes: Buffer) => parts.push(bytes))
    message.on('end', () => {
      const names = this.isSick && illness.models !== undefined ? illness.models : this.#models
      if (message.url === '/v1/models') json(response, 200, { data: names.map(id => ({ id })) })
      else if (message.url === '/health')
        json(response, this.isSick ? (illness.healthStatus ?? 200) : 200, {})
      else if (message.method !== 'POST' || message.url === '/tokenize') json(response, 404, {})
      else {
        this.gotMs.push(performance.now())
        const body = JSON.parse(Buffer.concat(parts).toString()) as { model: string; stream?: boolean }
        const request = { message, model: body.model, isStream: body.stream === true }
        if (this.isSick && illness.answer !== undefined) illness.answer(this, request, response)
        else serve(request, response, HEALTHY_MS)
      }
    })
  }

  get #models(): readonly string[] {
    return this.illness.hasSecondModel === true ? [this.model, secondOf(this.model)] : [this.model]
  }
}

function secondOf(model: string): string {
  return `${model}-second`
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}

const token = (model: string): string =>
  `data: ${JSON.stringify({ object: 'chat.completion.chunk', model, choices: [{ index: 0, delta: { content: 'a' } }] })}\n\n`
const DONE = 'data: [DONE]\n\n'
const SSE = { 'content-type': 'text/event-stream' }

/** As a healthy engine does, within `ms`. */
function serve(
  { model, isStream }: EngineRequest,
  response: ServerResponse,
  ms: number,
  usage = USAGE,
): void {
  if (!isStream) {
    setTimeout(() => json(response, 200, { object: 'chat.completion', model, choices: CHOICES, usage }), ms)
    return
  }
  response.writeHead(200, SSE)
  response.flushHeaders()
  let left = OUTPUT_EVENTS
  const next = (): void => {
    response.write(token(model))
    if (--left > 0) setTimeout(next, ms / 2 / OUTPUT_EVENTS)
    else response.end(DONE)
  }
  setTimeout(next, ms / 2)
}

const CHOICES = [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }]
const USAGE = { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 }
const LYING_USAGE = { prompt_tokens: 4_294_967_296, completion_tokens: 4_294_967_296, total_tokens: -1 }

const answering = (status: number): Required<Pick<Illness, 'answer'>> => ({
  answer: (_, __, response) => json(response, status, { error: { message: 'mine', code: status } }),
})
const notFound: NonNullable<Illness['answer']> = (_, { model }, response) =>
  json(response, 404, { error: { message: `The model \`${model}\` does not exist.`, code: 404 } })

/** What some illnesses need. */
export interface IllnessMeans {
  readonly good: Certificate
  readonly expired: Certificate
  /** With both, so that only the date is wrong. */
  readonly authorities: string
}

/** Needs openssl. */
export function meansIn(folder: string): IllnessMeans {
  const good = certificate(folder, 'good', 'IP:127.0.0.1')
  const expired = expiredCertificate(folder, 'IP:127.0.0.1')
  const authorities = join(folder, 'authorities.pem')
  writeFileSync(authorities, `${good.cert}\n${expired.cert}`)
  return { good, expired, authorities }
}

/** Without `means` those that need certificates are left out. */
export function illnesses(means: IllnessMeans | undefined): readonly Illness[] {
  return [
    ...[500, 502, 503, 504, 429].map(
      (status): Illness => ({ name: `answers ${status} at once`, ...answering(status) }),
    ),
    { name: 'answers 404 for its model at once', answer: notFound },
    { name: 'resets the connection', answer: (_, { message }) => void message.socket.resetAndDestroy() },
    { name: 'takes requests and never answers', answer: () => {} },
    {
      name: 'sends a head and nothing more',
      isStream: true,
      answer(_, __, response) {
        response.writeHead(200, SSE)
        response.flushHeaders()
      },
    },
    {
      name: 'sends comments and nothing more',
      isStream: true,
      answer(_, __, response) {
        response.writeHead(200, SSE)
        const timer = setInterval(() => response.write(': still there\n\n'), 100)
        response.on('close', () => clearInterval(timer))
      },
    },
    {
      name: 'breaks off in the middle of a stream',
      isStream: true,
      isSeenByClients: true,
      answer(_, { message, model }, response) {
        response.writeHead(200, SSE)
        response.write(token(model))
        setTimeout(() => message.socket.resetAndDestroy(), 20)
      },
    },
    {
      name: 'streams garbage',
      isStream: true,
      answer(_, __, response) {
        response.writeHead(200, SSE)
        response.end('\u0000\u0001 what a day \n\ndata: <<<\n\n')
      },
    },
    {
      name: 'answers 200 with a page of HTML',
      answer(_, __, response) {
        response.writeHead(200, { 'content-type': 'text/html' })
        response.end('<html>please sign in</html>')
      },
    },
    {
      name: 'fails half of the requests',
      answer(engine, request, response) {
        if (engine.turn++ % 2 === 0) json(response, 500, {})
        else serve(request, response, HEALTHY_MS)
      },
    },
    {
      name: 'fails one of its two models',
      hasSecondModel: true,
      answer(engine, request, response) {
        if (request.model === engine.model) json(response, 500, {})
        else serve(request, response, HEALTHY_MS)
      },
    },
    {
      name: 'flaps: fails for 250 ms, serves for 250 ms',
      answer(_, request, response) {
        if (Math.floor(performance.now() / 250) % 2 === 0) json(response, 500, {})
        else serve(request, response, HEALTHY_MS)
      },
    },
    {
      name: 'is 10 times as slow',
      mayStay: true,
      answer: (_, request, response) => serve(request, response, 10 * HEALTHY_MS),
    },
    {
      name: 'trickles: a token each quarter second',
      isStream: true,
      mayStay: true,
      answer: (_, request, response) => serve(request, response, OUTPUT_EVENTS * 500),
    },
    { name: 'has a dead core: /health is 503', healthStatus: 503, ...answering(500) },
    {
      name: 'restarts in place',
      begin: engine => engine.close(),
      end: engine => engine.listen(),
    },
    { name: 'serves another model now', models: ['of-another-day'], answer: notFound },
    {
      name: 'lies about its usage',
      mayStay: true,
      answer: (_, request, response) => serve(request, response, HEALTHY_MS, LYING_USAGE),
    },
    {
      name: 'moves to another address (DNS)',
      front: 'name',
      begin: engine => engine.close(),
      async end(engine) {
        await engine.listen('127.0.0.3')
        addresses.set(nameOf(engine), '127.0.0.3')
      },
    },
    ...(means === undefined ? [] : [expiring(means)]),
  ]
}

function expiring({ good, expired }: IllnessMeans): Illness {
  const change = ({ tls }: SickEngine, certificate: Certificate): void => {
    tls!.server.setSecureContext(certificate)
    tls!.endConnections()
  }
  return {
    name: 'has a certificate that has expired',
    front: 'tls',
    begin: engine => change(engine, expired),
    end: engine => change(engine, good),
  }
}

/** Names of engines whose address changes. */
const addresses = new Map<string, string>()
const nameOf = ({ port }: SickEngine): string => `engine-${port}.test`

const systemLookup = dns.lookup
/** Names of `addresses` are looked up there; all others by the system. */
function lookupHere(...given: Parameters<typeof dns.lookup>): void {
  const [name, options, callback] = given as unknown as [string, dns.LookupOptions, LookupCallback]
  const address = addresses.get(name)
  if (address === undefined) Reflect.apply(systemLookup, dns, given)
  else if (options.all === true) callback(null, [{ address, family: 4 }], 4)
  else callback(null, address, 4)
}
type LookupCallback = (error: null, address: string | dns.LookupAddress[], family: number) => void

/** The engines of an illness; the first is the one that becomes sick. */
export class Ward {
  readonly illness: Illness
  readonly model: string
  readonly engines: readonly SickEngine[]

  private constructor(illness: Illness, model: string) {
    this.illness = illness
    this.model = model
    this.engines = Array.from({ length: ENGINES }, () => new SickEngine(illness, model))
  }

  static async open(illness: Illness, model: string, means: IllnessMeans | undefined): Promise<Ward> {
    const ward = new Ward(illness, model)
    for (const engine of ward.engines) await engine.listen()
    const [sick] = ward.engines as [SickEngine]
    if (illness.front === 'tls') {
      sick.tls = await tlsFront(means!.good, sick.port)
      sick.url = `https://127.0.0.1:${sick.tls.port}`
    }
    if (illness.front === 'name') {
      dns.lookup = lookupHere as typeof dns.lookup
      addresses.set(nameOf(sick), '127.0.0.1')
      sick.url = `http://${nameOf(sick)}:${sick.port}`
    }
    return ward
  }

  async close(): Promise<void> {
    for (const engine of this.engines) await engine.stop()
    if (this.illness.front === 'name') dns.lookup = systemLookup
  }

  /** Makes the first engine sick under load for `seconds`, then cures it. */
  async course(router: RouterClient, seconds: number): Promise<Course> {
    const { illness, model } = this
    const [sick] = this.engines as [SickEngine]
    // The router knows how long answers take, and connections are kept.
    await this.#load(router, () => sick.gotMs.length < CLIENTS)
    const startMs = performance.now()
    const before = sick.gotMs.length
    const running = this.#load(router, () => performance.now() - startMs < seconds * 1000)
    sick.isSick = true
    await illness.begin?.(sick)
    const answers = await running
    const state = await router.worker(sick.url)
    const got = sick.gotMs.slice(before)
    const curedMs = performance.now()
    sick.isSick = false
    await illness.end?.(sick)
    const atCure = sick.gotMs.length
    await until(
      `${model} serves again`,
      async () => {
        await this.#load(router, sent => sent < CLIENTS)
        return sick.gotMs.length > atCure ? true : undefined
      },
      { msMax: BACK_MS_MAX },
    )
    const later = answers.filter(({ sentMs }) => sentMs - startMs > FIRST_SECOND_MS)
    const lastMs = lastBeforePause(got, startMs, curedMs)
    return {
      illness: illness.name,
      sent: answers.length,
      failed: answers.filter(({ isOk }) => !isOk).length,
      sentLater: later.length,
      failedLater: later.filter(({ isOk }) => !isOk).length,
      gotSick: got.length,
      leftMs: lastMs === undefined ? undefined : lastMs - startMs,
      backMs: sick.gotMs[atCure]! - curedMs,
      state: state.state === 'up' ? state.health.state : state.state,
    }
  }

  async #load(router: RouterClient, goesOn: (sent: number) => boolean): Promise<ClientAnswer[]> {
    const answers: ClientAnswer[] = []
    const { isStream: stream = false, hasSecondModel = false } = this.illness
    let sent = 0
    const client = async (): Promise<void> => {
      while (goesOn(sent)) {
        const n = sent++
        const model = hasSecondModel && n % 2 === 1 ? secondOf(this.model) : this.model
        const sentMs = performance.now()
        const body = { model, stream, messages: [{ role: 'user', content: `question ${n}` }] }
        const isOk = await router
          .send('/v1/chat/completions', { body, signal: AbortSignal.timeout(CLIENT_MS_MAX) })
          .then(
            ({ status, text }) =>
              status === 200 && (stream ? text.endsWith(DONE) : text.includes('"choices"')),
            () => false,
          )
        answers.push({ sentMs, isOk })
      }
    }
    await Promise.all(Array.from({ length: CLIENTS }, client))
    return answers
  }
}

interface ClientAnswer {
  readonly sentMs: number
  readonly isOk: boolean
}

const PAUSE_MS = 500
/** Trials of an engine that was left. */
const TRIALS_MAX = 8

/** The last time before nothing came for PAUSE_MS, and no more than trials after it; undefined: it stayed. */
function lastBeforePause(gotMs: readonly number[], startMs: number, endMs: number): number | undefined {
  let last = startMs
  for (const [i, at] of [...gotMs, endMs].entries()) {
    if (at - last >= PAUSE_MS && gotMs.length - i <= TRIALS_MAX) return last
    if (at !== endMs) last = at
  }
  return undefined
}

export interface CoursesOptions {
  /** A policy, or `round-robin`. */
  readonly policy: string
  readonly seconds: number
  readonly means: IllnessMeans | undefined
  readonly argv?: readonly string[]
}

/** The courses of these illnesses, all at the same time, under one router. */
export async function coursesOf(
  tried: readonly Illness[],
  { policy, seconds, means, argv = [] }: CoursesOptions,
): Promise<readonly Course[]> {
  const wards = await Promise.all(tried.map((illness, i) => Ward.open(illness, `model-${i}`, means)))
  try {
    const running = await startTestRouter(
      wards.flatMap(({ engines }) => engines.map(({ url }) => url)),
      [
        ...(policy === 'round-robin' ? ['--router-mode', policy] : ['--router-policy', policy]),
        ...(means === undefined ? [] : ['--engine-ca-file', means.authorities]),
        ...['--log-level', 'silent'],
        ...argv,
      ],
    )
    try {
      const router = new RouterClient(running.url)
      return await Promise.all(wards.map(ward => ward.course(router, seconds)))
    } finally {
      await running.stop(0)
    }
  } finally {
    await Promise.all(wards.map(ward => ward.close()))
  }
}
