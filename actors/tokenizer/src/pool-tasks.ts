/**
 * The work of the pool's threads: request bytes to model, prompt tokens, block hashes and hints.
 *
 *   read   scan the JSON, read what routing needs, render and tokenize, hash; or say what to ask an engine; where
 *          none can be asked, hash the text in pieces
 *   hash   an engine's `/tokenize` reply to block hashes
 *
 * While no worker has said its block size, a prompt is hashed in blocks of an assumed one. What was sent where can be
 * told with any size.
 *
 * A thread keeps every tokenizer that it has loaded. What a task throws is caught here and travels as a
 * record: an error class does not survive the way back.
 */

import { type HashNamespace, hashBlocks, hashText, namespaceSeed, textTokens } from '@homing/blocks'
import { toErrorRecord } from '@homing/errors'
import {
  type BodyEdit,
  cutMembers,
  InvalidRequestError,
  parseTokenIds,
  type RequestScan,
  ROUTER_MEMBERS,
  type RoutingRequest,
  readRequest,
  scanRequest,
  spliceMember,
  usageEdit,
} from '@homing/openai'
import type { CompletionRoute, ReadRequest, ReadResult } from './messages.ts'
import type { ModelEntry, ModelTable } from './model-table.ts'
import { type Prompt, promptTokens, renderedText } from './prompt-tokens.ts'
import { hasValue, mediumIn, tokenizeBody } from './tokenize-body.ts'

export type PoolTask =
  | {
      readonly type: 'read'
      readonly route: CompletionRoute
      readonly body: Uint8Array
      readonly headers: Readonly<Record<string, string>>
      readonly wantTokenIds: boolean
      readonly table: ModelTable
      /** Unix milliseconds, for templates that print the date. */
      readonly wallMs: number
      /** Why no engine is to be asked for this request any more; undefined: one may be. */
      readonly unaskable: string | undefined
    }
  | {
      readonly type: 'hash'
      /** Body of the `/tokenize` reply. */
      readonly reply: Uint8Array
      /** What `read` knew already. */
      readonly request: ReadRequest
      readonly namespace: HashNamespace
      readonly wantTokenIds: boolean
    }

export type PoolOutcome =
  | ReadResult
  | {
      readonly kind: 'ask-engine'
      /** Everything but the prompt. */
      readonly request: ReadRequest
      readonly namespace: HashNamespace
      /** Body for `/tokenize`: the client's own members, as bytes. */
      readonly tokenizeBody: Uint8Array
      readonly origins: readonly string[]
      /** Why this thread cannot tokenize it. */
      readonly why: string
    }

/** Until a worker has said another one. */
const ASSUMED_BLOCK_SIZE_TOKENS = 16

/** The one task of the pool's threads. Never throws. */
export async function runPoolTask(task: PoolTask): Promise<PoolOutcome> {
  try {
    return task.type === 'read' ? await read(task) : hashReply(task)
  } catch (thrown) {
    const param = (thrown as { readonly param?: unknown } | undefined)?.param
    return {
      kind: 'refused',
      error: toErrorRecord(thrown),
      param: typeof param === 'string' ? param : undefined,
    }
  }
}

async function read(task: Extract<PoolTask, { type: 'read' }>): Promise<PoolOutcome> {
  const { body, headers, route, table, wantTokenIds, wallMs } = task
  const scan = scanRequest(body)
  const request = readRequest(body, scan, headers, requiredOf(route, scan))
  const model = request.model ?? onlyBaseModel(table)
  const entry = table.get(model)
  const namespace: HashNamespace = {
    ...(entry?.loraName === undefined ? {} : { loraName: entry.loraName }),
    ...(request.cacheSalt === undefined ? {} : { cacheSalt: request.cacheSalt }),
  }
  const upstreamBody = upstreamBodyOf(body, scan, request)
  const unread: ReadRequest = {
    model,
    isStream: request.isStream,
    promptTokens: 0,
    blockSizeTokens: entry?.blockSizeTokens ?? ASSUMED_BLOCK_SIZE_TOKENS,
    localHashes: new Int32Array(0),
    sequenceHashes: new Int32Array(0),
    tokenIds: undefined,
    unknownPrompt: undefined,
    textBlocks: undefined,
    tokenizedBy: 'nobody',
    overlapScoreWeight: request.hints.overlapWeight,
    temperature: request.hints.temperature,
    pinnedInstanceId: instanceIdOf(request),
    pinnedRank: request.hints.dpRank,
    annotations: request.hints.annotations,
    extraFields: request.hints.extraFields,
    upstreamBody,
    usageEdit: usageEditOf(request, upstreamBody ?? body, upstreamBody === undefined ? scan : undefined),
  }
  const unknown = (reason: string): PoolOutcome => ({
    kind: 'read',
    request: { ...unread, unknownPrompt: reason },
  })

  // The router says which models there are; it refuses this one.
  if (entry === undefined) return unknown('no worker serves the model')
  const asText = async (why: string): Promise<PoolOutcome> => {
    const text = await textOf(body, scan, request, entry, wallMs)
    return text === undefined
      ? unknown(why)
      : { kind: 'read', request: withText(unread, text, namespace, why) }
  }
  const prompt = await promptOf(body, scan, request, entry, wallMs)
  switch (prompt.kind) {
    case 'tokens':
      return {
        kind: 'read',
        request: withTokens(unread, prompt.ids, namespace, wantTokenIds, prompt.by),
      }
    case 'unknown':
      return unknown(prompt.reason)
    case 'ask-engine': {
      if (task.unaskable !== undefined) return asText(task.unaskable)
      const question = tokenizeBody(body, scan, request, model)
      if (question.kind === 'unknown') return asText(`${prompt.why}; ${question.reason}`)
      if (entry.tokenizeOrigins.length === 0)
        return asText(`${prompt.why}; no worker can be asked to tokenize`)
      return {
        kind: 'ask-engine',
        request: unread,
        namespace,
        tokenizeBody: question.body,
        origins: entry.tokenizeOrigins,
        why: prompt.why,
      }
    }
  }
}

function hashReply(task: Extract<PoolTask, { type: 'hash' }>): PoolOutcome {
  const { request, namespace, wantTokenIds } = task
  const scan = scanRequest(task.reply)
  const tokens = scan.byName.get('tokens')
  if (tokens === undefined) throw new InvalidRequestError('tokens', '(missing)', 'the reply of /tokenize')
  const ids = parseTokenIds(task.reply, tokens.value, 'tokens')
  return {
    kind: 'read',
    request: withTokens(request, ids, namespace, wantTokenIds, 'engine'),
  }
}

async function promptOf(
  body: Uint8Array,
  scan: RequestScan,
  request: RoutingRequest,
  entry: ModelEntry,
  wallMs: number,
): Promise<Prompt> {
  const { tokenData } = request.hints
  if (tokenData !== undefined) {
    return { kind: 'tokens', ids: parseTokenIds(body, tokenData, 'nvext.token_data'), by: 'client' }
  }
  if (hasValue(body, scan, 'truncate_prompt_tokens')) {
    return { kind: 'unknown', reason: 'truncate_prompt_tokens changes the prompt inside the engine' }
  }
  if (request.promptShape === 'tokens') {
    return { kind: 'tokens', ids: parseTokenIds(body, request.prompt!, 'prompt'), by: 'client' }
  }
  return promptTokens(body, request, entry, wallMs)
}

function withTokens(
  request: ReadRequest,
  ids: Int32Array,
  namespace: HashNamespace,
  wantTokenIds: boolean,
  tokenizedBy: ReadRequest['tokenizedBy'],
): ReadRequest {
  const { local, sequence } = hashBlocks(ids, request.blockSizeTokens, namespaceSeed(namespace))
  return {
    ...request,
    promptTokens: ids.length,
    localHashes: local,
    sequenceHashes: sequence,
    tokenIds: wantTokenIds ? ids : undefined,
    tokenizedBy,
  }
}

function withText(
  request: ReadRequest,
  text: Uint8Array,
  namespace: HashNamespace,
  why: string,
): ReadRequest {
  const { local, sequence } = hashText(text, request.blockSizeTokens, namespace)
  return {
    ...request,
    promptTokens: textTokens(text.length),
    localHashes: local,
    sequenceHashes: sequence,
    textBlocks: why,
  }
}

/** The text of a prompt, as far as it decides what an engine caches; undefined where there is more than text to it. */
async function textOf(
  body: Uint8Array,
  scan: RequestScan,
  request: RoutingRequest,
  entry: ModelEntry,
  wallMs: number,
): Promise<Uint8Array | undefined> {
  if (request.promptShape === 'text') return body.subarray(request.prompt!.start + 1, request.prompt!.end - 1)
  if (request.promptShape !== 'messages' || mediumIn(body, scan) !== undefined) return undefined
  const rendered = await renderedText(body, entry, wallMs)
  if (rendered !== undefined) return Buffer.from(rendered)
  // What templates put before the messages; and the messages without their end, so that they may go on.
  const parts: Uint8Array[] = []
  for (const name of ['chat_template', 'chat_template_kwargs', 'tools', 'documents', 'messages']) {
    const value = scan.byName.get(name)?.value
    if (value !== undefined)
      parts.push(body.subarray(value.start, name === 'messages' ? value.end - 1 : value.end))
  }
  return Buffer.concat(parts)
}

/** `/route` takes token ids for a prompt; the other routes leave it to the engine to refuse what it must. */
function requiredOf(
  route: CompletionRoute,
  scan: RequestScan,
): { readonly requires?: 'messages' | 'prompt' } {
  if (route === 'chat') return { requires: 'messages' }
  return scan.byName.has('token_ids') ? {} : { requires: 'prompt' }
}

/** Clients may leave the model out where there is but one, as engines allow. */
function onlyBaseModel(table: ModelTable): string {
  const bases = [...table.values()].filter(({ loraName }) => loraName === undefined)
  if (bases.length === 1) return bases[0]!.name
  throw new InvalidRequestError(
    'model',
    '(missing)',
    `one of ${bases.map(({ name }) => name).join(', ') || 'the models served'}`,
  )
}

function instanceIdOf(request: RoutingRequest): number | undefined {
  const { workerId } = request.hints
  // Ids of workers are small here; a larger number names none, and the router says so.
  return workerId === undefined ? undefined : Number(workerId)
}

/** The body without what is meant for the router, and with the salt that a header or `nvext` set. */
function upstreamBodyOf(
  body: Uint8Array,
  scan: RequestScan,
  request: RoutingRequest,
): Uint8Array | undefined {
  const cut = request.hasNvext ? cutMembers(body, scan, ROUTER_MEMBERS) : undefined
  const { cacheSalt } = request
  if (cacheSalt === undefined) return cut
  const current = cut ?? body
  const currentScan = cut === undefined ? scan : scanRequest(cut)
  const own = currentScan.byName.get('cache_salt')
  const wanted = JSON.stringify(cacheSalt)
  if (own !== undefined) {
    const text = Buffer.from(current.subarray(own.value.start, own.value.end)).toString()
    if (JSON.parse(text) === cacheSalt) return cut
  }
  return spliceMember(current, currentScan, 'cache_salt', wanted)
}

/** `scan` where the body has been scanned already. */
function usageEditOf(
  request: RoutingRequest,
  body: Uint8Array,
  scan: RequestScan | undefined,
): BodyEdit | undefined {
  if (!request.isStream || request.includesUsage) return undefined
  return usageEdit(body, scan ?? scanRequest(body))
}
