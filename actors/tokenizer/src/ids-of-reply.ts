/** The ids in an engine's answer to `/tokenize`. */

import { InvalidRequestError, parseTokenIds, scanRequest } from '@homing/openai'

/** Throws MalformedJsonError or InvalidRequestError. */
export function idsOfReply(body: Uint8Array): Int32Array {
  const tokens = scanRequest(body).byName.get('tokens')
  if (tokens === undefined) throw new InvalidRequestError('tokens', '(missing)', 'the reply of /tokenize')
  return parseTokenIds(body, tokens.value, 'tokens')
}
