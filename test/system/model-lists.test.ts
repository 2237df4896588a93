/**
 * What workers serve, by real sockets: lists of models that change, contexts of different lengths, forms,
 * aliases, and conversations with more than text. The engines are small servers, which say what a test wrote
 * down and note what they get.
 */

import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { freePort } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { RouterClient, startTestRouter, TINY_TOKENIZER, until } from './fleet.ts'

interface Card {
  readonly id: string
  readonly parent?: string
  readonly max_model_len?: number
}

interface Got {
  readonly path: string
  readonly body: Buffer
}

/** An engine that serves the models of its list, and answers 404 for all others, as vLLM does. */
class ListedEngine {
  readonly url: string
  readonly id: string
  models: readonly Card[]
  /** Requests of clients. */
  got: Got[] = []
  /** Adapters that it loads when a request names them. */
  loadable = new Set<string>()
  readonly #close: () => Promise<void>

  private constructor(url: string, models: readonly Card[], close: () => Promise<void>) {
    this.url = url
    this.id = new URL(url).host
    this.models = models
    this.#close = close
  }

  static async start(t: Test, models: readonly Card[], port = 0): Promise<ListedEngine> {
    const server = createServer((request, response) => {
      const pieces: Buffer[] = []
      request.on('data', (piece: Buffer) => pieces.push(piece))
      request.on('end', () => engine.#serve(request, response, Buffer.concat(pieces)))
    })
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
    const { port: taken } = server.address() as AddressInfo
    const engine = new ListedEngine(`http://127.0.0.1:${taken}`, models, async () => {
      if (!server.listening) return
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    })
    t.teardown(() => engine.close())
    return engine
  }

  close(): Promise<void> {
    return this.#close()
  }

  #serve({ method, url = '' }: IncomingMessage, response: ServerResponse, body: Buffer): void {
    if (url === '/v1/models') json(response, 200, { object: 'list', data: this.models })
    else if (url === '/health') json(response, 200, {})
    else if (method !== 'POST' || url === '/tokenize') json(response, 404, {})
    else {
      this.got.push({ path: url, body })
      const text = body.toString('latin1')
      const model =
        /"model":"([^"]*)"/.exec(text)?.[1] ?? /name="model"\r\n\r\n([^\r]*)/.exec(text)?.[1] ?? ''
      const { max_model_len: max } = this.models.find(({ id }) => id === model) ?? {}
      if (this.loadable.has(model)) json(response, 200, { model, choices: [] })
      else if (!this.models.some(({ id }) => id === model))
        json(response, 404, { error: { message: `The model \`${model}\` does not exist.`, code: 404 } })
      else if (max !== undefined && text.split('pigeon').length > max)
        json(response, 400, { error: { message: `maximum context length is ${max} tokens`, code: 400 } })
      else json(response, 200, { model, choices: [], usage: { prompt_tokens: 5, completion_tokens: 1 } })
    }
  }
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}

async function startRouter(t: Test, urls: readonly string[], argv: readonly string[]): Promise<RouterClient> {
  const running = await startTestRouter(urls, ['--log-level', 'silent', ...argv])
  t.teardown(() => running.stop(0))
  return new RouterClient(running.url)
}

const chat = (model: string, content: string = 'hi', more: object = {}) => ({
  body: { model, messages: [{ role: 'user', content }], ...more },
})

async function statuses(router: RouterClient, model: string, count: number): Promise<ReadonlySet<number>> {
  const seen = new Set<number>()
  for (let i = 0; i < count; i++)
    seen.add((await router.send('/v1/chat/completions', chat(model, `${i}`))).status)
  return seen
}

/** The same at once: one after the other they would go to the worker that is a little faster. */
async function together(router: RouterClient, model: string, count: number): Promise<void> {
  const all = Array.from({ length: count }, (_, i) =>
    router.send('/v1/chat/completions', chat(model, `${i}`)),
  )
  for (const { status, text } of await Promise.all(all)) if (status !== 200) throw new Error(text)
}

t.test('lists that change: an adapter lost, one that is new, another model at the address', async t => {
  const both = [{ id: 'm' }, { id: 'poet', parent: 'm' }]
  // A port that no dialling socket is given while it is closed.
  const port = await freePort()
  const a = await ListedEngine.start(t, both, port)
  const b = await ListedEngine.start(t, both)
  const router = await startRouter(t, [a.url, b.url], ['--probe-interval', '100ms'])

  a.models = [{ id: 'm' }]
  t.strictSame(await statuses(router, 'poet', 20), new Set([200]), 'a has lost it, before any probe')
  await until('the list is read anew', async () => {
    a.got = []
    await statuses(router, 'poet', 4)
    return a.got.length === 0 ? true : undefined
  })

  b.models = [...both, { id: 'bard', parent: 'm' }]
  await until('the new adapter is known', async () => {
    const { status } = await router.send('/v1/chat/completions', chat('bard'))
    return status === 200 ? true : undefined
  })
  t.strictSame(await statuses(router, 'bard', 10), new Set([200]))

  await a.close()
  const other = await ListedEngine.start(t, [{ id: 'other' }], port)
  t.strictSame(await statuses(router, 'm', 20), new Set([200]), 'at once')
  await until('its model is known', async () => {
    const { status } = await router.send('/v1/chat/completions', chat('other'))
    return status === 200 ? true : undefined
  })
  t.strictSame(await statuses(router, 'other', 5), new Set([200]))
  t.strictSame(await statuses(router, 'm', 5), new Set([200]))
  t.ok(other.got.length >= 6)
})

t.test('a model that no worker lists: 503 while one is loading, then its answer; else 404', async t => {
  const up = await ListedEngine.start(t, [{ id: 'm' }])
  const port = await freePort()
  const later = await ListedEngine.start(t, [], port)
  await later.close()
  const router = await startRouter(t, [up.url, later.url], ['--probe-interval', '100ms'])
  for (const path of ['/v1/chat/completions', '/v1/responses', '/v1/embeddings', '/v1/models/new']) {
    const call = path.startsWith('/v1/models') ? {} : { body: { model: 'new', messages: [{}], input: 'x' } }
    const { status, headers, json } = await router.send(path, call)
    t.strictSame([status, headers['retry-after']], [503, '5'], path)
    t.match(json.error, { code: 'no_worker', message: new RegExp(later.id) }, path)
  }
  t.equal((await router.send('/v1/chat/completions', chat('m'))).status, 200)
  await ListedEngine.start(t, [{ id: 'new' }], port)
  await until('it serves the new model', async () => {
    const { status } = await router.send('/v1/chat/completions', chat('new'))
    return status === 200 ? true : undefined
  })
  t.equal((await router.send('/v1/chat/completions', chat('never'))).status, 404, 'all have answered')
})

t.test('a mixed fleet: contexts, forms, names and conversations', async t => {
  const listing = (max_model_len: number) => [
    { id: 'm', max_model_len },
    { id: 'n', max_model_len },
  ]
  const small = await ListedEngine.start(t, listing(2000))
  const large = await ListedEngine.start(t, listing(32_000))
  const ears = await ListedEngine.start(t, [{ id: 'whisper' }])
  const twins = [await ListedEngine.start(t, [{ id: 'twin' }]), await ListedEngine.start(t, [{ id: 'twin' }])]
  const all = [small, large, ears, ...twins]
  const argv = ['--model-alias', 'claude-haiku-*=gone|m', '--model-alias', 'listen=whisper']
  const router = await startRouter(
    t,
    all.map(({ url }) => url),
    [
      ...argv,
      '--unlisted-adapters-of',
      'twin',
      '--router-session-affinity-ttl-secs',
      '60',
      '--tokenizer',
      `m=${TINY_TOKENIZER}`,
    ],
  )
  const forget = () => {
    for (const engine of all) engine.got = []
  }

  await t.test('a prompt of 5,006 words goes where there is room for it', async t => {
    for (const [model, known] of [
      ['m', 'by tokens'],
      ['n', 'by text'],
    ] as const) {
      forget()
      for (let i = 0; i < 20; i++) {
        const content = `${i} ${'pigeon '.repeat(5006)}`
        t.equal((await router.send('/v1/chat/completions', chat(model, content))).status, 200, known)
      }
      t.strictSame([small.got.length, large.got.length], [0, 20], known)
      await together(router, model, 20)
      t.ok(small.got.length > 0, 'short ones go to both')
    }
  })

  await t.test('a form goes to the engine of its model, byte for byte', async t => {
    forget()
    const form = (model: string) =>
      Buffer.concat([
        Buffer.from('--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'),
        Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7919) & 0xff)),
        Buffer.from(`\r\n--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n${model}\r\n--b--\r\n`),
      ])
    const headers = { 'content-type': 'multipart/form-data; boundary=b' }
    for (const path of ['/v1/audio/transcriptions', '/v1/audio/translations', '/v1/images/edits'])
      for (let i = 0; i < 4; i++)
        t.equal((await router.send(path, { body: form('whisper'), headers })).status, 200, path)
    t.strictSame(
      all.map(({ got }) => got.length),
      [0, 0, 12, 0, 0],
    )
    t.ok(ears.got.every(({ body }) => body.equals(form('whisper'))))
    t.equal((await router.send('/v1/audio/transcriptions', { body: form('listen'), headers })).status, 200)
    t.ok(ears.got.at(-1)!.body.equals(form('whisper')), 'but for an alias')
    t.equal((await router.send('/v1/audio/transcriptions', { body: form('none'), headers })).status, 404)
  })

  await t.test('an alias is served by the first of its models that is there', async t => {
    forget()
    const answer = await router.send('/v1/messages', {
      body: {
        model: 'claude-haiku-4-5-20251001',
        max_tokens: 8,
        messages: [{ role: 'user', content: 'hi' }],
      },
    })
    t.strictSame([answer.status, answer.json.model], [200, 'm'])
    const [got] = [...small.got, ...large.got]
    t.equal(JSON.parse(got!.body.toString()).model, 'm')
    const { data } = (await router.send('/v1/models')).json
    t.ok(data.some(({ id }: { id: string }) => id === 'listen'))
  })

  await t.test('an adapter that no engine lists is found at the engine that can load it', async t => {
    twins[1]!.loadable.add('resolved')
    for (let i = 0; i < 5; i++)
      t.equal((await router.send('/v1/chat/completions', chat('resolved', `${i}`))).status, 200)
    const missing = await router.send('/v1/chat/completions', chat('unresolved'))
    t.strictSame([missing.status, missing.json.error.code], [404, 404], 'the answer of the engine')
  })

  await t.test('a conversation with a tool of the engine stays where it is known', async t => {
    const say = (turn: number) => ({
      role: 'user',
      content: `Turn ${turn}: ${'a homing pigeon '.repeat(30)}`,
    })
    let left = 0
    let before: string | undefined
    for (let turn = 0; turn < 36; turn++) {
      // Others come and go, so that load alone would move it.
      await router.send('/v1/chat/completions', chat('twin', `other ${turn}`))
      const { headers } = await router.send('/v1/responses', {
        body: {
          model: 'twin',
          instructions: 'Find it.',
          tools: [{ type: 'web_search' }],
          input: Array.from({ length: turn + 1 }, (_, i) => say(i)),
        },
      })
      const worker = headers['x-homing-worker']!
      if (before !== undefined && worker !== before) left++
      before = worker
    }
    // A worker that is busy just then may be left; by load alone it was half of the turns.
    t.ok(left <= 3, `${left} of 36 turns left their worker`)
  })

  await t.test('headers that clients send, and prompt_cache_key, name the session', async t => {
    // Only the engine knows the prompt, so nothing but the session can tell.
    const workersOf = async (headers: Record<string, string>, more: object = {}) => {
      const seen = new Set<string>()
      const body = { model: 'twin', input: 'x', conversation: 'c', ...more }
      for (let i = 0; i < 12; i++) {
        const answer = await router.send('/v1/responses', { body, headers })
        seen.add(answer.headers['x-homing-worker']!)
      }
      return seen.size
    }
    // One after the other they would go to the one that is a little faster.
    const body = { model: 'twin', input: 'x', conversation: 'c' }
    const atOnce = await Promise.all(Array.from({ length: 24 }, () => router.send('/v1/responses', { body })))
    const used = new Set(atOnce.map(({ headers }) => headers['x-homing-worker']))
    t.equal(used.size, 2, 'without one, any of the two')
    for (const name of ['x-session-id', 'session_id', 'x-claude-code-session-id', 'X-Conversation-Id'])
      t.equal(await workersOf({ [name]: `session of ${name}` }), 1, name)
    t.equal(await workersOf({}, { prompt_cache_key: 'key' }), 1, 'prompt_cache_key')
  })
})
