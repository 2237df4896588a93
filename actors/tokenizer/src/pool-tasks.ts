/**
 * The work of the pool's threads: request bytes to model, prompt tokens, block hashes and hints.
 *
 *   read   scan the JSON, read what routing needs, render and tokenize, hash; or say what to ask an engine
 *   hash   an engine's `/tokenize` reply to block hashes
 *
 * A thread keeps every tokenizer that it has loaded. What a task throws is caught here and travels as a
 * record: an error class does not survive the way back.
 */

import { type HashNamespace, hashBlocks, namespaceSeed } from '@homing/blocks'
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
import { type Prompt, promptTokens } from './prompt-tokens.ts'
import { hasValue, tokenizeBody } from './tokenize-body.ts'

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
    }
  | {
      readonly type: 'hash'
      /** Body of the `/tokenize` reply. */
      readonly reply: Uint8Array
      /** What `read` knew already. */
      readonly request: ReadRequest
      readonly namespace: HashNamespace
      readonly isBlockSizeKnown: boolean
      readonly wantTokenIds: boolean
    }

export type PoolOutcome =
  | ReadResult
  | {
      readonly kind: 'ask-engine'
      /** Everything but the prompt. */
      readonly request: ReadRequest
      readonly namespace: HashNamespace
      /** False: `request.blockSizeTokens` is assumed, and the prompt cannot be cut into blocks. */
      readonly isBlockSizeKnown: boolean
      /** Body for `/tokenize`: the client's own members, as bytes. */
      readonly tokenizeBody: Uint8Array
      readonly origins: readonly string[]
      /** Why this thread cannot tokenize it. */
      readonly why: string
    }

/** Only scales the cost of a prompt that is not known. */
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
  const isBlockSizeKnown = entry.blockSizeTokens !== undefined
  const prompt = await promptOf(body, scan, request, entry, wallMs)
  switch (prompt.kind) {
    case 'tokens':
      return {
        kind: 'read',
        request: withTokens(unread, prompt.ids, namespace, wantTokenIds, prompt.by, isBlockSizeKnown),
      }
    case 'unknown':
      return unknown(prompt.reason)
    case 'ask-engine': {
      const question = tokenizeBody(body, scan, request, model)
      if (question.kind === 'unknown') return unknown(`${prompt.why}; ${question.reason}`)
      if (entry.tokenizeOrigins.length === 0)
        return unknown(`${prompt.why}; no worker can be asked to tokenize`)
      return {
        kind: 'ask-engine',
        request: unread,
        namespace,
        isBlockSizeKnown,
        tokenizeBody: question.body,
        origins: entry.tokenizeOrigins,
        why: prompt.why,
      }
    }
  }
}

function hashReply(task: Extract<PoolTask, { type: 'hash' }>): PoolOutcome {
  const { request, namespace, wantTokenIds, isBlockSizeKnown } = task
  const scan = scanRequest(task.reply)
  const tokens = scan.byName.get('tokens')
  if (tokens === undefined) throw new InvalidRequestError('tokens', '(missing)', 'the reply of /tokenize')
  const ids = parseTokenIds(task.reply, tokens.value, 'tokens')
  return {
    kind: 'read',
    request: withTokens(request, ids, namespace, wantTokenIds, 'engine', isBlockSizeKnown),
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
  isBlockSizeKnown: boolean,
): ReadRequest {
  const { local, sequence } = hashBlocks(ids, request.blockSizeTokens, namespaceSeed(namespace))
  return {
    ...request,
    promptTokens: ids.length,
    localHashes: isBlockSizeKnown ? local : request.localHashes,
    sequenceHashes: isBlockSizeKnown ? sequence : request.sequenceHashes,
    tokenIds: wantTokenIds ? ids : undefined,
    unknownPrompt: isBlockSizeKnown ? undefined : 'no worker has said its block size yet',
    tokenizedBy,
  }
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
