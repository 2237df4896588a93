/** A reader on this thread, with local models or engines to ask, for the tests of what it reads. */

import { fileURLToPath } from 'node:url'
import { type ModelNames, NO_ALIASES } from '@homing/fleet'
import { PromptTokenizer } from '@homing/tokenization'
import { BodyReader } from '../src/body-reader.ts'
import type { CompletionRoute, ReadRequest } from '../src/index.ts'
import { type ModelTable, modelTable, readGivenTokenizers } from '../src/model-table.ts'
import type { ReaderOutcome } from '../src/reader-tasks.ts'
import { adapter, fleetOf, model, type WorkerOptions } from './fleet.ts'

export const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
export const BLOCK = 4
export const TEXT = 'A homing pigeon finds its way back over a thousand kilometres.'
export const HELLO = [{ role: 'user', content: TEXT }]

export const reader = new BodyReader({ promptCacheBytes: 1e7, wordTableBytes: 2 ** 20 })
let version = 0
export const tiny = await PromptTokenizer.load(TINY)
export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)
export const textOf = (bytes: Uint8Array | undefined): string | undefined =>
  bytes === undefined ? undefined : new TextDecoder().decode(bytes)

/** Everything local: the model `m` and its adapter `poet`. */
export const LOCAL = tableOf([`m=${TINY}`], {
  models: [model('m'), adapter('poet', 'm')],
  blockSizeTokens: BLOCK,
})
/** Nothing local: the engines are asked. */
export const REMOTE = tableOf([], { blockSizeTokens: BLOCK, canTokenize: true })

export function tableOf(given: readonly string[], ...workers: WorkerOptions[]): ModelTable {
  return modelTable(fleetOf(...workers), readGivenTokenizers(given))
}

interface ReadOptions {
  readonly route?: CompletionRoute
  readonly headers?: Record<string, string>
  readonly table?: ModelTable
  readonly wantTokenIds?: boolean
  readonly wallMs?: number
  readonly unaskable?: string
  readonly names?: ModelNames
  readonly unlistedAdaptersOf?: string
  readonly trustsTokenData?: boolean
  readonly affinityFields?: readonly string[]
  readonly promptIds?: Int32Array
}

/** `body`: JSON text as it stands, or a value. */
export function run(body: string | object, options: ReadOptions = {}): Promise<ReaderOutcome> {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  reader.configure({
    version: ++version,
    table: options.table ?? LOCAL,
    tokenizers: new Map(),
    distrusted: new Set(),
    names: options.names ?? NO_ALIASES,
    unlistedAdaptersOf: options.unlistedAdaptersOf,
    trustsTokenData: options.trustsTokenData ?? false,
    affinityFields: options.affinityFields ?? [],
  })
  return reader.run({
    type: 'read',
    version,
    route: options.route ?? (text.includes('"messages"') ? 'chat' : 'completions'),
    body: utf8(text),
    promptIds: options.promptIds,
    headers: options.headers ?? {},
    wantTokenIds: options.wantTokenIds ?? true,
    wallMs: options.wallMs ?? 0,
    unaskable: options.unaskable,
  })
}

export async function read(body: string | object, options: ReadOptions = {}): Promise<ReadRequest> {
  const outcome = await run(body, options)
  if (outcome.kind !== 'read') throw new Error(`${outcome.kind}: ${JSON.stringify(outcome)}`)
  return outcome.request
}

export async function refusal(body: string | object, options: ReadOptions = {}): Promise<unknown[]> {
  const outcome = await run(body, options)
  return outcome.kind === 'refused'
    ? [outcome.error.code, outcome.param, outcome.error.message]
    : [outcome.kind]
}

export async function question(body: string | object, options: ReadOptions = {}) {
  const outcome = await run(body, { table: REMOTE, ...options })
  if (outcome.kind === 'ask-engine') return { body: textOf(outcome.tokenizeBody), why: outcome.why }
  if (outcome.kind === 'refused') return { kind: outcome.kind, why: outcome.error.code }
  if (outcome.kind !== 'read') return { kind: outcome.kind, why: undefined }
  return {
    kind: outcome.kind,
    why: outcome.request.unknownPromptReason ?? outcome.request.textBlocksReason,
  }
}

export const chatIds = (body: object): number[] => {
  const answer = tiny.encodeChat(JSON.stringify(body))
  return answer.kind === 'tokens' ? [...answer.tokens] : []
}
