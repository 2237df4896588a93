/** Compares the tokens of one chat at an engine with those of the router's tokenizer. */

import { COMPARED_CHAT, firstDifference, type WorkerModel, type WorkerSpec } from '@homing/fleet'
import type { DiagnosisTokenizer } from './diagnose-options.ts'
import type { ChatComparison } from './evidence.ts'
import { readTokens } from './own-request.ts'
import { jsonOf, type RecordedHttp } from './recorded-http.ts'

const PATH = '/tokenize'
const ANSWER_BYTES_MAX = 1024 * 1024

/** Undefined: one of them does not tokenize chats. */
export async function compareChat(
  http: RecordedHttp,
  { origin }: WorkerSpec,
  model: WorkerModel | undefined,
  { encodeChat }: DiagnosisTokenizer,
  timeoutMs: number,
): Promise<ChatComparison | undefined> {
  const body = JSON.stringify({ model: model?.name, messages: COMPARED_CHAT })
  const ours = encodeChat(body)
  if (ours === undefined) return undefined
  const headers = { 'content-type': 'application/json' }
  const request = { origin, method: 'POST', path: PATH, headers, body: new TextEncoder().encode(body) }
  // The record has the error.
  await http.fetch(request, { timeoutMs, maxBytes: ANSWER_BYTES_MAX }).catch(() => undefined)
  const theirs = readTokens(jsonOf(http.of(PATH)))
  if (theirs === undefined || theirs.length === 0) return undefined
  const differsAt = firstDifference(ours, theirs)
  return { tokens: ours.length, engineTokens: theirs.length, differsAt }
}
