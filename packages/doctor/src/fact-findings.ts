/**
 * Findings about the facts of a worker: reported by the worker, given by the operator, or guessed. Pure.
 */

import type { ProbedFact } from '@homing/fleet'
import { type Finding, note, ok, warning } from './diagnosis.ts'
import { requestsWaiting } from './engine-figures.ts'
import type { ReachedEvidence } from './evidence.ts'
import type { AskedHttp } from './recorded-http.ts'

/** An answer that takes more of its time than this is near to none. */
const SLOW_SHARE = 0.5
/** The Date header has whole seconds; behind that a clock is not set. */
const SKEW_MS_MAX = 3000
/** Smaller blocks flood the event stream. */
const BLOCK_TOKENS_MIN = 8

export function factFindings(evidence: ReachedEvidence): readonly Finding[] {
  return [
    answersFinding(evidence),
    ...unansweredFindings(evidence),
    againFinding(evidence),
    waitingFinding(evidence),
    clockFinding(evidence),
    modelFinding(evidence),
    blockFinding(evidence),
    budgetFinding(evidence),
    ranksFinding(evidence),
    tokensFinding(evidence),
  ].filter(finding => finding !== undefined)
}

function answersFinding({ asked, outcome, timeoutMs }: ReachedEvidence): Finding {
  const { engine, engineVersion } = outcome
  const name = engine === 'unknown' ? 'an engine of unknown kind' : `${engine} ${engineVersion}`.trim()
  const first = asked.find(({ path }) => path === '/v1/models')!
  const slowest = asked
    .filter(({ reply, path }) => reply !== undefined && path !== '/v1/completions')
    .reduce((worst, one) => (one.durationMs > worst.durationMs ? one : worst), first)
  if (slowest.durationMs <= timeoutMs * SLOW_SHARE)
    return ok('answers', `${name}, in ${Math.round(first.durationMs)} ms`)
  return warning(
    'answers',
    undefined,
    `${name} is slow: ${slowest.method} ${slowest.path} took ${Math.round(slowest.durationMs)} ms of ${timeoutMs} at most`,
    'relieve it, or raise --probe-timeout',
  )
}

const LOST: Readonly<Record<ProbedFact, string>> = {
  engine: 'what it is',
  engineVersion: 'its version',
  blockSizeTokens: 'its block size',
  maxBatchedTokens: 'its token budget',
  kvBlocks: 'its blocks',
  ranks: 'its ranks',
  canTokenize: 'whether it tokenizes',
  legs: 'its role',
  sleep: 'whether it sleeps',
  eventSources: 'where it publishes events',
  processStartSeconds: 'when it started',
}

/** Questions that it did not answer in time, or with an error of its own. */
function unansweredFindings({ asked, outcome, timeoutMs }: ReachedEvidence): readonly Finding[] {
  const open = asked.filter(
    ({ reply, path }) =>
      path !== '/v1/completions' && (reply === undefined || reply.status === 429 || reply.status >= 500),
  )
  if (open.length === 0) return []
  const lost = [...new Set(outcome.unanswered.map(fact => LOST[fact]))]
  return [
    warning(
      'answers',
      undefined,
      `no answer within ${timeoutMs} ms to ${open.map(({ path }) => path).join(', ')}${lost.length === 0 ? '' : `: not known is ${lost.join(', ')}`}`,
      'it may be overloaded: relieve it, or raise --probe-timeout',
    ),
  ]
}

function againFinding({ spec, isAgain }: ReachedEvidence): Finding | undefined {
  if (!isAgain) return undefined
  return warning('ports', undefined, `${spec.id} is given twice`, 'give it once: a router refuses it')
}

function waitingFinding({ asked }: ReachedEvidence): Finding | undefined {
  const waiting = requestsWaiting(metricsOf(asked))
  if (waiting === undefined || waiting === 0) return undefined
  return note(
    'answers',
    `${waiting} ${waiting === 1 ? 'request waits' : 'requests wait'} in it`,
    'it has more to do than it can begin: add engines, or let requests wait in the router (docs/queue.md)',
  )
}

/** '' where there are none. */
function metricsOf(asked: readonly AskedHttp[]): string {
  const answer = asked.find(({ path }) => path === '/metrics')?.reply
  return answer?.status === 200 ? new TextDecoder().decode(answer.body) : ''
}

function clockFinding({ asked }: ReachedEvidence): Finding | undefined {
  const skewMs = skewOf(asked)
  if (skewMs === undefined) return undefined
  const seconds = Math.round(Math.abs(skewMs) / 1000)
  if (Math.abs(skewMs) <= SKEW_MS_MAX) return ok('clock', 'agrees with that of this machine')
  return note(
    'clock',
    `${seconds} s ${skewMs > 0 ? 'ahead of' : 'behind'} that of this machine: the times of its logs do not compare`,
    'set both clocks by NTP',
  )
}

/** Milliseconds that its clock is ahead; undefined: no answer has a date. */
function skewOf(asked: readonly AskedHttp[]): number | undefined {
  for (const { reply, middleWallMs } of asked) {
    const header = reply?.headers['date']
    const dateMs = typeof header === 'string' ? Date.parse(header) : Number.NaN
    // The header drops the fraction of its second.
    if (Number.isFinite(dateMs)) return dateMs + 500 - middleWallMs
  }
  return undefined
}

function modelFinding({ spec, outcome }: ReachedEvidence): Finding {
  const names = outcome.models.map(({ name }) => name)
  if (spec.model !== undefined && !outcome.models.some(card => [card.name, card.base].includes(spec.model))) {
    return warning(
      'model',
      undefined,
      `model=${spec.model} is given, but it serves ${names.join(', ') || 'none'}: requests for it are refused there`,
      'leave out model, or correct it',
    )
  }
  if (names.length === 0) return warning('model', undefined, 'it serves no model: no request goes there')
  return ok('model', `serves ${names.join(', ')}`)
}

function blockFinding({ spec, outcome, facts, ranks, twin }: ReachedEvidence): Finding {
  const seen = ranks.flatMap(({ watch, replay }) => [
    ...(watch?.seen.blockSizesTokens ?? []),
    ...(replay?.seen.blockSizesTokens ?? []),
  ])
  const inEvents = seen.find(size => size !== facts.blockSizeTokens?.value) ?? seen[0]
  const given = facts.blockSizeTokens?.source === 'given' ? facts.blockSizeTokens.value : undefined
  const real = inEvents ?? outcome.blockSizeTokens
  if (given !== undefined && real !== undefined && given !== real) {
    return warning(
      'blocks',
      'approximate',
      `a block size of ${given} is given, but its ${inEvents === undefined ? 'configuration says' : 'events have'} ${real}: no block would ever be found`,
      spec.blockSizeTokens === undefined
        ? `leave out --kv-cache-block-size, or give ${real}`
        : `leave out block_size, or give block_size=${real}`,
    )
  }
  if (real === undefined && given === undefined) {
    return note('blocks', 'its block size is not known until its first event', 'name it: ?block_size=TOKENS')
  }
  const size = real ?? given!
  if (twin !== undefined && twin.blockSizeTokens !== size) {
    return warning(
      'blocks',
      'approximate',
      `blocks of ${size} tokens, but ${twin.id} of the same model has ${twin.blockSizeTokens}`,
      'start both with the same block size',
    )
  }
  if (size < BLOCK_TOKENS_MIN) {
    return warning(
      'blocks',
      undefined,
      `blocks of ${size} ${size === 1 ? 'token' : 'tokens'} flood the event stream`,
      `start the engine with ${outcome.engine === 'vllm' ? '--block-size 16' : '--page-size 16'} or more`,
    )
  }
  const capacity = facts.kvBlocks === undefined ? '' : `, ${facts.kvBlocks.value} of them per rank`
  const source =
    inEvents !== undefined ? 'in its events' : outcome.blockSizeTokens === undefined ? 'given' : 'probed'
  return ok('blocks', `blocks of ${size} tokens (${source})${capacity}`)
}

/**
 * The budget decides how long a prompt keeps a worker busy, so a wrong one misplaces long prompts.
 *
 * The histogram `vllm:iteration_tokens_total` does not show it: vLLM 0.32.0 counts a prompt whole when its
 * prefill ends, 1,062 tokens with a budget of 512.
 */
function budgetFinding({ outcome, facts }: ReachedEvidence): Finding {
  const { value, source } = facts.maxBatchedTokens
  if (source !== 'default') return ok('budget', `computes up to ${value} tokens in a step (${source})`)
  return note(
    'budget',
    `up to ${value} tokens in a step is a guess: the engine does not say, and with fewer a long prompt takes longer than is thought`,
    outcome.engine === 'vllm'
      ? 'name what its --max-num-batched-tokens is, such as ?max_batched_tokens=512; with VLLM_SERVER_DEV_MODE=1 it tells it itself'
      : 'name it, such as ?max_batched_tokens=512',
  )
}

function ranksFinding({ spec, outcome, facts }: ReachedEvidence): Finding | undefined {
  const { ranks: told } = outcome
  if (spec.ranks !== undefined && told !== undefined && spec.ranks !== told) {
    return warning(
      'ranks',
      'approximate',
      `ranks=${spec.ranks} is given, but it has ${told}`,
      `leave out ranks, or give ranks=${told}`,
    )
  }
  if (facts.ranks.value === 1) return undefined
  return ok('ranks', `${facts.ranks.value} data-parallel ranks (${facts.ranks.source})`)
}

function tokensFinding({ outcome, tokenizer, chat }: ReachedEvidence): Finding {
  if (tokenizer !== undefined && chat?.differsAt !== undefined) {
    return warning(
      'tokens',
      undefined,
      `it makes ${chat.engineTokens} tokens of a chat that are ${chat.tokens} with ${tokenizer}, other ones from token ${chat.differsAt} on: each prompt costs a call of its POST /tokenize`,
      'give the router what it was started with: --tokenizer, --chat-template, --default-chat-template-kwargs',
    )
  }
  if (tokenizer !== undefined) return ok('tokens', `prompts are tokenized here, with ${tokenizer}`)
  if (outcome.canTokenize) {
    return note(
      'tokens',
      'its tokenizer is not on this machine: each prompt costs a call of its POST /tokenize',
      'give the router its directory: --tokenizer DIR',
    )
  }
  return warning(
    'tokens',
    'approximate',
    'its tokenizer is not on this machine and it answers no POST /tokenize: the blocks of prompts are not known',
    'give the router its directory: --tokenizer DIR',
  )
}
