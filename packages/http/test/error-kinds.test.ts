/** Every error that can meet a request has an OpenAI form. */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { apiErrorOf, KIND_OF_CODE } from '../src/error-kinds.ts'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
/** Where the errors of a request come from. */
const REQUEST_PATH = [
  'actors/queue',
  'actors/router',
  'actors/tokenizer',
  'actors/gateway',
  'actors/console',
  'actors/what-if',
  'packages/http',
  'packages/openai',
  'packages/placement',
  'packages/transport',
  'packages/publisher/src/registration',
]
/** Codes that never reach a client, and why. */
const NEVER_ANSWERED = new Map([
  ['HOMING_TRANSPORT_STREAM', 'streams of events carry no request'],
  ['HOMING_HTTP_ACCESS_LOG', 'the indexer does not start, or answers in a form of its own'],
  ['HOMING_HTTP_BAD_ADMIN_KEYS', 'the router does not start, or goes by the keys of before'],
  ['HOMING_SERVICE_BAD_REQUEST', 'a service answers it in a form of its own'],
  ['HOMING_SERVICE_MISTYPED', 'a service answers it in a form of its own'],
  ['HOMING_SERVICE_BODY_TYPE', 'a service answers it in a form of its own'],
  ['HOMING_SERVICE_NOT_FOUND', 'a service answers it in a form of its own'],
  ['HOMING_SERVICE_CONFLICT', 'a service answers it in a form of its own'],
  ['HOMING_SERVICE_FULL', 'a service answers it in a form of its own'],
  ['HOMING_SERVICE_BUSY', 'a service answers it in a form of its own'],
  ['HOMING_SERVICE_STOPPING', 'a service answers it in a form of its own'],
  ['HOMING_SERVICE_ACTOR_LOST', 'the service ends'],
  ['HOMING_TRANSPORT_LISTEN', 'the router does not start'],
  ['HOMING_TRANSPORT_ENDPOINT', 'event sockets'],
  ['HOMING_TRANSPORT_NO_HOST', 'event sockets'],
  ['HOMING_TRANSPORT_NAME', 'workers that are here stay'],
  ['HOMING_TRANSPORT_NOT_INSTALLED', 'the router does not start'],
  ['HOMING_TRANSPORT_CALL', 'the exchange says which worker failed, the tokenizer serves by load'],
  ['HOMING_WORKER_BAD_REGISTRATION', 'the worker does not start'],
  ['HOMING_WHAT_IF_FAILED', 'a state of the question, which GET /what_if gives'],
  ['HOMING_TRANSPORT_CLIENT_GONE', 'nobody is there to be told'],
])

/** A folder of the list, or its `src` where it has one. */
function sourceFolder(folder: string): string {
  const source = join(ROOT, folder, 'src')
  return existsSync(source) ? source : join(ROOT, folder)
}

function sourcesUnder(folder: string): string[] {
  return readdirSync(sourceFolder(folder), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.ts'))
    .map(name => readFileSync(join(sourceFolder(folder), name), 'utf8'))
}

const declaredIn = (folder: string): string[] =>
  sourcesUnder(folder).flatMap(text =>
    [...text.matchAll(/\bcode = '(HOMING_\w+)'/g)].map(([, code]) => code!),
  )

t.test('each code of the request path has a kind of its own', async t => {
  const codes = REQUEST_PATH.flatMap(declaredIn)
  t.ok(codes.length > 15, `${codes.length} codes`)
  for (const code of codes) {
    const { kind, status } = apiErrorOf({ code, message: 'm', details: {} })
    if (NEVER_ANSWERED.has(code)) t.equal(kind, 'internal_error', code)
    else t.ok(kind !== 'internal_error' && status !== 500, `${code} is ${kind}`)
  }
})

t.test('no code of the table is unknown to the sources', async t => {
  const declared = new Set(
    [...REQUEST_PATH, 'actors/directory', 'packages/fleet', 'packages/actor', 'packages/protocol'].flatMap(
      declaredIn,
    ),
  )
  for (const code of Object.keys(KIND_OF_CODE)) t.ok(declared.has(code), code)
})

t.test('an unknown error is internal, and nobody should repeat it', async t => {
  t.match(apiErrorOf({ code: 'HOMING_INTERNAL_UNEXPECTED', message: 'a bug', details: {} }), {
    status: 500,
    code: 'internal_error',
    headers: { 'x-should-retry': 'false' },
  })
})
