/**
 * Relayed body: what the router reads of the body of a relayed request. Its engine judges the rest, also what
 * cannot be read here.
 */

import { textTokens } from '@homing/blocks'
import {
  type BodyHold,
  EncodingRatioError,
  encodingOf,
  MalformedEncodingError,
  UnsupportedEncodingError,
} from '@homing/http'
import {
  cutMembers,
  editBody,
  estimatePrompt,
  isForm,
  type PromptEstimate,
  type RelayedRequest,
  ROUTER_MEMBERS,
  readFormModel,
  readRelayedRequest,
  scanRequest,
  spliceMember,
} from '@homing/openai'
import { BodyTooLargeError, type HttpExchange, type HttpHeaders } from '@homing/transport'
import { computesNothing } from './relay-routes.ts'

const NO_MEMBERS = new TextEncoder().encode('{}')
const ENCODED = 'has a content encoding that cannot be undone'
const FORMLESS = 'is neither JSON by its content type nor a whole form with a model'

export interface ReadRelayed extends RelayedRequest {
  readonly body: Uint8Array | undefined
  /** What the engine computes of it; undefined: nothing, or it is no JSON. */
  readonly estimate: PromptEstimate | undefined
  /** Why its model is not known, though it may name one. */
  readonly unread?: string | undefined
}

/**
 * Model, pins and the bytes for the engine. Of a form only the model is read, of a body that is neither form
 * nor JSON nothing. `servedModel`: the model behind a name.
 */
export function readRelayed(
  body: Uint8Array | undefined,
  { headers, path }: HttpExchange,
  servedModel: (name: string) => string,
): ReadRelayed {
  const contentType = String(headers['content-type'] ?? '')
  // Some clients send a content type without a body.
  if (body === undefined || body.length === 0 || !isJson(headers)) {
    const read = readRelayedRequest(NO_MEMBERS, scanRequest(NO_MEMBERS), headers)
    const form = body !== undefined && isForm(contentType) ? readFormModel(body, contentType) : undefined
    const unread = body === undefined ? ENCODED : form?.isWhole === true ? undefined : FORMLESS
    if (form === undefined) return { ...read, body, estimate: undefined, unread }
    const model = servedModel(form.model)
    return {
      ...read,
      model,
      body: model === form.model ? body : editBody(body!, { ...form.range, text: model }),
      estimate: undefined,
      unread,
    }
  }
  const scan = scanRequest(body)
  const read = readRelayedRequest(body, scan, headers)
  const estimate = computesNothing(path) ? undefined : estimatePrompt(body, scan, textTokens)
  const cut = read.hasNvext ? cutMembers(body, scan, ROUTER_MEMBERS) : body
  const model = read.model === undefined ? undefined : servedModel(read.model)
  if (model === undefined || model === read.model) return { ...read, body: cut, estimate }
  const cutScan = cut === body ? scan : scanRequest(cut)
  return { ...read, model, body: spliceMember(cut, cutScan, 'model', JSON.stringify(model)), estimate }
}

/** The body as it is to be read; undefined: it cannot be, and the engine has to judge it. */
export async function plainBody(
  body: Uint8Array,
  { headers }: HttpExchange,
  hold: BodyHold,
  bytesMax: number,
): Promise<Uint8Array | undefined> {
  try {
    const encoding = encodingOf(headers)
    if (encoding === undefined) return body
    return isJson(headers) ? await hold.decode(encoding, body, bytesMax) : undefined
  } catch (thrown) {
    const isTheirs =
      thrown instanceof UnsupportedEncodingError ||
      thrown instanceof MalformedEncodingError ||
      thrown instanceof EncodingRatioError ||
      thrown instanceof BodyTooLargeError
    if (!isTheirs) throw thrown
    return undefined
  }
}

export function isJson(headers: HttpHeaders): boolean {
  return String(headers['content-type'] ?? '').includes('json')
}
