import t from 'tap'
import { type ApiErrorKind, apiError, errorBody, errorEvent, modelsBody } from '../src/index.ts'

t.test('every kind of error has its status, and an OpenAI body', async t => {
  const statuses: Record<ApiErrorKind, number> = {
    malformed_http: 400,
    headers_timeout: 408,
    expectation_failed: 417,
    headers_too_large: 431,
    malformed_json: 400,
    invalid_value: 400,
    empty_prompt: 400,
    pin_not_allowed: 400,
    forbidden: 403,
    worker_conflict: 409,
    what_if_busy: 409,
    unauthorized: 401,
    route_not_found: 404,
    model_not_found: 404,
    method_not_allowed: 405,
    unsupported_encoding: 415,
    malformed_encoding: 400,
    body_timeout: 408,
    duplicate_request: 409,
    body_too_large: 413,
    rate_limited: 429,
    overloaded: 503,
    queue_full: 503,
    class_limit: 503,
    deadline: 503,
    do_not_queue: 503,
    no_worker: 503,
    shutting_down: 503,
    upstream_failed: 502,
    timeout: 504,
    internal_error: 500,
  }
  for (const [kind, status] of Object.entries(statuses) as [ApiErrorKind, number][]) {
    const error = apiError(kind, 'cannot do "that": why é', { param: 'n' })
    t.equal(error.status, status, kind)
    const body = JSON.parse(Buffer.from(errorBody(error)).toString()) as unknown
    t.strictSame(body, {
      error: { message: 'cannot do "that": why é', type: error.type, param: 'n', code: error.code },
    })
    t.equal(error.headers['content-type'], 'application/json')
    t.equal(error.headers['retry-after'] !== undefined, status === 503 || status === 429)
  }
})

t.test('an unknown model is what clients know it as', async t => {
  const error = apiError('model_not_found', 'no such model')
  t.match(error, { status: 404, type: 'NotFoundError', code: 'model_not_found', param: null })
})

t.test('retry-after is whole seconds, and the status of overload may be another', async t => {
  const error = apiError('overloaded', 'busy', { retryAfterSeconds: 0.2, status: 529 })
  t.match(error, { status: 529, headers: { 'retry-after': '1' } })
  t.equal(apiError('upstream_failed', 'gone').headers['x-should-retry'], 'false')
})

t.test('the event form is one data line and an empty line', async t => {
  const event = Buffer.from(errorEvent(apiError('upstream_failed', 'line\nbreak'))).toString()
  t.match(event, /^data: \{"error":\{[^\n]*\}\}\n\n$/)
})

t.test('lists models as engines do', async t => {
  const cards = [
    { id: 'base', maxModelTokens: 4096 },
    { id: 'adapter', parent: 'base', root: '/a' },
  ]
  t.strictSame(JSON.parse(Buffer.from(modelsBody(cards)).toString()), {
    object: 'list',
    data: [
      {
        id: 'base',
        object: 'model',
        created: 0,
        owned_by: 'homing',
        root: 'base',
        parent: null,
        max_model_len: 4096,
      },
      { id: 'adapter', object: 'model', created: 0, owned_by: 'homing', root: '/a', parent: 'base' },
    ],
  })
})
