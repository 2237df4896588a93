/**
 * Live: the stream of the router, followed as long as the page is open.
 *
 *   connecting ─▶ live ─▶ lost ─▶ connecting …        refused: the router says why, and may want a key
 *
 * Tabs of one browser share one stream: a browser opens six connections to a router at most, so the seventh
 * tab would never connect. The tab that has the lock reads; the others get its events over a channel, and one
 * of them takes the lock when it closes. Without locks (plain HTTP from another machine), each tab reads by
 * itself.
 *
 * The stream is read by fetch, because an EventSource sends no key. After SILENCE_MS without a byte it counts
 * as lost. Attempts follow each other after 0.5 s, 1 s, … 5 s. A hidden tab goes on reading: the router would
 * have to keep unread events.
 */

import type { PageSections } from '../src/sections.ts'

export type LiveStatus = 'connecting' | 'live' | 'lost' | 'refused'

export interface LiveState {
  readonly status: LiveStatus
  /** Why it is lost or refused. */
  readonly reason: string
  /** The router wants a key of operators. */
  readonly needsKey: boolean
  /** Attempts since the stream was last live. */
  readonly attempts: number
  /** The router, or its console, was started anew while the page was open. */
  readonly restarts: number
  readonly sections: Partial<PageSections>
  /** Of each worker key, once a second, the oldest first. */
  readonly history: ReadonlyMap<string, readonly Sample[]>
}

export interface Sample {
  readonly events: number
  readonly requests: number
  readonly prefillTokens: number
}

/** Between the tabs of a browser. */
type ChannelMessage =
  /** A tab has come. */
  | { readonly type: 'hello' }
  /** What the tab that reads knows; each makes its own history. */
  | { readonly type: 'state'; readonly state: Omit<LiveState, 'history'> }
  | { readonly type: 'key'; readonly key: string }

/** Of this page, not of another router below another path. */
const CHANNEL = `homing-live:${location.pathname}`
const SILENCE_MS = 15_000
const RETRY_MS = { first: 500, most: 5000 }
const SAMPLES_MAX = 60
const KEY_NAME = 'homing-admin-key'
const FIRST: LiveState = {
  status: 'connecting',
  reason: '',
  needsKey: false,
  attempts: 0,
  restarts: 0,
  sections: {},
  history: new Map(),
}

export class Live {
  #state: LiveState = FIRST
  #listener: (state: LiveState) => void = () => {}
  #wake: () => void = () => {}
  #life: string | undefined
  #isReading = false
  readonly #channel = 'locks' in navigator ? new BroadcastChannel(CHANNEL) : undefined

  get state(): LiveState {
    return this.#state
  }

  /** Follows the stream; never ends. */
  start(listener: (state: LiveState) => void): void {
    this.#listener = listener
    const channel = this.#channel
    if (channel === undefined) {
      void this.#follow()
      return
    }
    channel.onmessage = ({ data }: MessageEvent<ChannelMessage>) => this.#heard(data)
    channel.postMessage({ type: 'hello' } satisfies ChannelMessage)
    void navigator.locks.request(CHANNEL, () => {
      this.#isReading = true
      return this.#follow()
    })
  }

  #heard(message: ChannelMessage): void {
    if (message.type === 'key') {
      sessionStorage.setItem(KEY_NAME, message.key)
      this.#wake()
    } else if (message.type === 'state') {
      if (this.#isReading) return
      const { sections } = message.state
      const isNext = sections.beat?.now !== this.#state.sections.beat?.now
      const history = isNext ? sampled(this.#state.history, sections) : this.#state.history
      this.#state = { ...message.state, history }
      this.#listener(this.#state)
    } else if (this.#isReading) {
      const key = sessionStorage.getItem(KEY_NAME)
      if (key !== null) this.#channel?.postMessage({ type: 'key', key } satisfies ChannelMessage)
      this.#share()
    }
  }

  #share(): void {
    if (!this.#isReading) return
    const { history: _, ...state } = this.#state
    this.#channel?.postMessage({ type: 'state', state } satisfies ChannelMessage)
  }

  /** Keeps the key as long as the tab lives, and tries at once. */
  useKey(key: string): void {
    sessionStorage.setItem(KEY_NAME, key)
    this.#channel?.postMessage({ type: 'key', key } satisfies ChannelMessage)
    this.#wake()
  }

  /** A JSON route of the router. Rejects with an Error that says why. */
  async get(path: string): Promise<unknown> {
    const answer = await fetch(path, { headers: { accept: 'application/json', ...keyHeader() } })
    if (!answer.ok) throw new Error(await messageOf(answer))
    return answer.json()
  }

  /** Has the router do something. Rejects with an Error that says why it does not. */
  async send(method: 'POST' | 'DELETE', path: string, body?: object): Promise<void> {
    const answer = await fetch(path, {
      method,
      headers: { accept: 'application/json', ...keyHeader() },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    if (!answer.ok) throw new Error(await messageOf(answer))
  }

  #set(change: Partial<LiveState>): void {
    this.#state = { ...this.#state, ...change }
    this.#listener(this.#state)
    this.#share()
  }

  async #follow(): Promise<void> {
    for (;;) {
      await this.#once().catch((error: unknown) => {
        const reason = error instanceof Refused ? error.message : 'the router does not answer'
        const needsKey = error instanceof Refused && error.needsKey
        const status = error instanceof Refused ? 'refused' : 'lost'
        this.#set({ status, reason, needsKey, attempts: this.#state.attempts + 1 })
      })
      await this.#pause()
    }
  }

  #pause(): Promise<void> {
    const { attempts, needsKey } = this.#state
    return new Promise(resolve => {
      this.#wake = resolve
      // With the key that it has it would be refused again.
      if (!needsKey) setTimeout(resolve, Math.min(RETRY_MS.most, RETRY_MS.first * 2 ** Math.min(attempts, 6)))
    })
  }

  /** One stream, to its end. Rejects always. */
  async #once(): Promise<never> {
    const abort = new AbortController()
    let timer = setTimeout(() => abort.abort(), SILENCE_MS)
    try {
      const answer = await fetch('page/live', {
        headers: keyHeader(),
        signal: abort.signal,
        cache: 'no-store',
      })
      if (!answer.ok) throw await refusalOf(answer)
      if (answer.body === null) throw new Error('no body')
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
      let text = ''
      for (;;) {
        const { value, done } = await reader.read()
        if (done) throw new Error('the stream has ended')
        clearTimeout(timer)
        timer = setTimeout(() => abort.abort(), SILENCE_MS)
        text += value
        const end = text.lastIndexOf('\n\n')
        if (end < 0) continue
        this.#take(text.slice(0, end).split('\n\n'))
        text = text.slice(end + 2)
      }
    } finally {
      clearTimeout(timer)
      abort.abort()
    }
  }

  #take(events: readonly string[]): void {
    const sections: Record<string, unknown> = { ...this.#state.sections }
    for (const event of events) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(event) ?? []
      if (name !== undefined && data !== undefined) sections[name] = JSON.parse(data)
    }
    const taken = sections as Partial<PageSections>
    const { beat } = taken
    let { restarts, history } = this.#state
    if (beat !== undefined && beat.life !== this.#life) {
      if (this.#life !== undefined) restarts++
      this.#life = beat.life
      history = new Map()
    }
    if (beat?.now !== this.#state.sections.beat?.now) history = sampled(history, taken)
    this.#set({
      status: 'live',
      reason: '',
      needsKey: false,
      attempts: 0,
      restarts,
      sections: taken,
      history,
    })
  }
}

/** Keys that have left are forgotten. */
function sampled(
  history: LiveState['history'],
  { fleet }: Partial<PageSections>,
): ReadonlyMap<string, readonly Sample[]> {
  const next = new Map<string, readonly Sample[]>()
  for (const { worker, events, requests, prefill_tokens: prefillTokens } of fleet?.keys ?? []) {
    const sample = { events: events ?? 0, requests, prefillTokens }
    next.set(worker, [...(history.get(worker) ?? []).slice(1 - SAMPLES_MAX), sample])
  }
  return next
}

class Refused extends Error {
  readonly needsKey: boolean

  constructor(message: string) {
    super(message)
    this.needsKey = message.includes('send the key')
  }
}

function keyHeader(): Record<string, string> {
  const key = sessionStorage.getItem(KEY_NAME)
  return key === null ? {} : { authorization: `Bearer ${key}` }
}

async function refusalOf(answer: Response): Promise<Error> {
  const message = await messageOf(answer)
  return [401, 403, 503].includes(answer.status) ? new Refused(message) : new Error(message)
}

async function messageOf(answer: Response): Promise<string> {
  const body = (await answer.json().catch(() => undefined)) as { error?: { message?: string } } | undefined
  return body?.error?.message ?? `the router answers ${answer.status}`
}
