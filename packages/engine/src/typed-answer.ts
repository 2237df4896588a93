/**
 * Answers of /v1/responses and /v1/messages: events that name their type, and their whole forms.
 *
 *   responses   response.created, output_text.delta for each token, response.completed (or incomplete)
 *   messages    message_start, content_block_start, content_block_delta for each token, …stop, message_delta,
 *               message_stop
 *
 * As vLLM writes them, with the members that clients read. Neither stream ends with [DONE].
 */

export type TypedKind = 'responses' | 'messages'

/** What an answer says of itself. */
export interface TypedHead {
  readonly kind: TypedKind
  readonly id: string
  readonly model: string
  /** Seconds since 1970. */
  readonly createdSeconds: number
}

export interface TypedEnd {
  readonly text: string
  readonly finishReason: 'length' | 'stop' | 'abort'
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly outputTokens: number
}

/** What a stream begins with. */
export function typedStart(head: TypedHead, promptTokens: number): string {
  if (head.kind === 'responses') {
    const response = responseOf(head, 'in_progress', undefined)
    return event('response.created', { response }) + event('response.in_progress', { response })
  }
  const usage = { input_tokens: promptTokens, output_tokens: 0 }
  const message = { ...messageHead(head), content: [], stop_reason: null, stop_sequence: null, usage }
  return (
    event('message_start', { message }) +
    event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } })
  )
}

export function typedDelta(head: TypedHead, delta: string): string {
  if (head.kind === 'messages') {
    return event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: delta } })
  }
  return event('response.output_text.delta', { item_id: `msg-${head.id}`, output_index: 0, delta })
}

/** What a complete stream ends with. */
export function typedStreamEnd(head: TypedHead, end: TypedEnd): string {
  if (head.kind === 'responses') {
    const type = end.finishReason === 'length' ? 'response.incomplete' : 'response.completed'
    return event(type, { response: typedBody(head, end) })
  }
  return (
    event('content_block_stop', { index: 0 }) +
    event('message_delta', { delta: stopOf(end), usage: messageUsage(end) }) +
    event('message_stop', {})
  )
}

/** The whole answer. */
export function typedBody(head: TypedHead, end: TypedEnd): object {
  if (head.kind === 'responses') {
    return responseOf(head, end.finishReason === 'length' ? 'incomplete' : 'completed', end)
  }
  const content = [{ type: 'text', text: end.text }]
  return { ...messageHead(head), content, ...stopOf(end), usage: messageUsage(end) }
}

function event(type: string, members: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`
}

function responseOf({ id, model, createdSeconds }: TypedHead, status: string, end: TypedEnd | undefined) {
  const content = [{ type: 'output_text', text: end?.text, annotations: [], logprobs: null }]
  return {
    id,
    object: 'response',
    created_at: createdSeconds,
    status,
    incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    model,
    output:
      end === undefined ? [] : [{ id: `msg-${id}`, type: 'message', role: 'assistant', status, content }],
    usage: end === undefined ? null : responseUsage(end),
  }
}

function responseUsage({ promptTokens, cachedTokens, outputTokens }: TypedEnd) {
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: outputTokens,
    total_tokens: promptTokens + outputTokens,
  }
}

function messageHead({ id, model }: TypedHead) {
  return { id, type: 'message', role: 'assistant', model }
}

/** `input_tokens` excludes cached tokens. */
function messageUsage({ promptTokens, cachedTokens, outputTokens }: TypedEnd) {
  return {
    input_tokens: promptTokens - cachedTokens,
    output_tokens: outputTokens,
    cache_read_input_tokens: cachedTokens,
  }
}

function stopOf({ finishReason }: TypedEnd) {
  return { stop_reason: finishReason === 'length' ? 'max_tokens' : 'end_turn', stop_sequence: null }
}
