/** Findings about the one request that a diagnosis sends itself. Pure. */

import { type Finding, note, ok, warning } from './diagnosis.ts'
import type { ReachedEvidence } from './evidence.ts'
import type { OwnRequest } from './own-request.ts'
import { cut, reasonOf } from './step-texts.ts'

/** Events come with the step that computes a block; behind that they are late. */
const LATE_MS = 500
const SLOW_SHARE = 0.5

export function requestFindings(evidence: ReachedEvidence): readonly Finding[] {
  const { own } = evidence
  if (own === undefined) return []
  const { reply, error, durationMs } = own.answer
  if (reply === undefined) {
    return [
      warning(
        'request',
        undefined,
        error?.failure === 'timeout'
          ? `it did not answer one short request within ${evidence.timeoutMs} ms: it is overloaded or stuck`
          : `one short request failed: ${cut(reasonOf(error))}`,
        'relieve it, or look at its log; a longer --timeout waits longer',
      ),
    ]
  }
  if (reply.status !== 200) return [refused(reply.status, new TextDecoder().decode(reply.body))]
  const ms = Math.round(durationMs)
  return [
    durationMs > evidence.timeoutMs * SLOW_SHARE
      ? warning('request', undefined, `it took ${ms} ms to answer one short request`, 'relieve it')
      : ok('request', `answered one request of ${own.promptTokens ?? 'its'} prompt tokens in ${ms} ms`),
    ...(evidence.ranks.some(({ connectedMs }) => connectedMs !== undefined)
      ? storeFindings(evidence, own)
      : []),
    usageFinding(evidence, own),
  ]
}

function refused(status: number, body: string): Finding {
  const text = `one short request was answered ${status}: ${cut(body)}`
  const isKey = status === 401 || status === 403
  return warning(
    'request',
    undefined,
    text,
    isKey ? 'give its key: --engine-api-key-file FILE, or ?key_file=FILE in its URL' : 'look at its log',
  )
}

function storeFindings({ timeoutMs }: ReachedEvidence, own: OwnRequest): readonly Finding[] {
  const { storedAfterMs, storedBlocks, otherStores, agreement } = own
  if (storedAfterMs === undefined) {
    return [
      warning(
        'events',
        'approximate',
        `no event told of the blocks of its own request within ${timeoutMs} ms${otherStores > 0 ? `, but ${otherStores} of other prompts came: the socket may be that of another engine` : ''}`,
        'correct ?events=PORT; see that --enable-prefix-caching is on and that the endpoint has the form tcp://*:PORT',
      ),
    ]
  }
  const blocks = `${storedBlocks} ${storedBlocks === 1 ? 'block' : 'blocks'}`
  const ms = Math.round(storedAfterMs)
  const findings: Finding[] = [
    storedAfterMs > LATE_MS
      ? warning(
          'events',
          'partial',
          `its events are late: ${blocks} of its own request were told ${ms} ms after the answer`,
          'relieve the engine, or the network between',
        )
      : ok('events', `told of the ${blocks} of its own request`),
  ]
  if (agreement === undefined) return findings
  const { equal, compared } = agreement
  if (equal < compared) {
    findings.push(
      warning(
        'tokens',
        'approximate',
        `the tokens of the router differ from those of the engine from token ${equal} on: no block behind it would be found`,
        'give --tokenizer the directory that the engine has loaded',
      ),
    )
  } else
    findings.push(ok('tokens', `the tokens of the router are those of the events (${compared} compared)`))
  return findings
}

/** Whether the usage of answers allows audits of predictions. */
function usageFinding({ outcome }: ReachedEvidence, own: OwnRequest): Finding {
  if (own.saysCachedTokens)
    return ok('usage', 'answers say how many tokens were cached: predictions are audited')
  return note(
    'usage',
    'answers do not say how many tokens were cached: wrong predictions go unnoticed',
    outcome.engine === 'sglang'
      ? 'start the engine with --enable-cache-report'
      : 'start the engine with --enable-prompt-tokens-details',
  )
}
