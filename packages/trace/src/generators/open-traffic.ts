/**
 * Traffic with fixed times, one generator per kind. Each yields requests in order of time, for as long as it
 * is asked, but `groups`, which has an end; prompts of a kind share exactly what its description says.
 */

import type { Random } from '@homing/base'
import type { TraceRequest } from '../trace-request.ts'
import { poissonGapMs, shuffle, tokensDraw, uniformDraw, ZipfRanks } from './draws.ts'
import { GrowingPrompt, PrefixIds } from './growing-prompt.ts'

/**
 * Production chat as in the Mooncake conversation trace: a median prompt of 6,900 tokens and a mean of
 * 12,000.
 */
const CHAT_TOKENS_MEDIAN = 6900
const CHAT_TOKENS_SIGMA = 1.05
const CHAT_TOKENS_MAX = 126_000

/** Nothing shared: the price of being cache-aware where it cannot help. */
export function* uniqueTraffic(random: Random, perSecond: number): Generator<TraceRequest> {
  const ids = new PrefixIds()
  for (let nowMs = 0; ; ) {
    nowMs += poissonGapMs(random, perSecond)
    const prompt = new GrowingPrompt(ids)
    prompt.add(tokensDraw(random, CHAT_TOKENS_MEDIAN, CHAT_TOKENS_SIGMA, 16, CHAT_TOKENS_MAX))
    yield requestOf(prompt, nowMs, tokensDraw(random, 300, 0.6, 1, 4000))
  }
}

const HOT_TOKENS = 32_768
const HOT_MS = 120_000
const HOT_SHARE = 0.6

/**
 * One prefix of 32 k tokens takes 60 % of the requests for two minutes, then another one; the rest shares
 * nothing.
 */
export function* hotTraffic(random: Random, perSecond: number): Generator<TraceRequest> {
  const ids = new PrefixIds()
  for (let nowMs = 0; ; ) {
    nowMs += poissonGapMs(random, perSecond)
    const prompt = new GrowingPrompt(ids)
    if (random.next() < HOT_SHARE) {
      prompt.add(HOT_TOKENS, `hot ${Math.floor(nowMs / HOT_MS)}`)
      prompt.add(tokensDraw(random, 300, 0.8, 1, 8000))
    } else {
      prompt.add(tokensDraw(random, CHAT_TOKENS_MEDIAN, CHAT_TOKENS_SIGMA, 16, CHAT_TOKENS_MAX))
    }
    yield requestOf(prompt, nowMs, tokensDraw(random, 300, 0.6, 1, 4000))
  }
}

const DOCUMENTS = 5000
const DOCUMENT_TOKENS_MIN = 2000
const DOCUMENT_TOKENS_MAX = 6000
const DOCUMENTS_PER_REQUEST_MAX = 5

/**
 * One to five documents of 2 to 6 k tokens out of 5,000 by Zipf's law (exponent 0.8), then a question. In
 * half of the requests the documents are in the order of their numbers, so that prompts with the same
 * documents share them; in the others in any order.
 */
export function* ragTraffic(random: Random, perSecond: number): Generator<TraceRequest> {
  const ids = new PrefixIds()
  const lengths = Array.from({ length: DOCUMENTS }, () =>
    uniformDraw(random, DOCUMENT_TOKENS_MIN, DOCUMENT_TOKENS_MAX),
  )
  const ranks = new ZipfRanks(DOCUMENTS, 0.8)
  for (let nowMs = 0; ; ) {
    nowMs += poissonGapMs(random, perSecond)
    const wanted = uniformDraw(random, 1, DOCUMENTS_PER_REQUEST_MAX)
    const drawn = new Set<number>()
    while (drawn.size < wanted) drawn.add(ranks.draw(random))
    const documents = [...drawn].sort((a, b) => a - b)
    if (random.next() < 0.5) shuffle(random, documents)
    const prompt = new GrowingPrompt(ids)
    for (const document of documents) prompt.add(lengths[document]!, `document ${document}`)
    prompt.add(tokensDraw(random, 60, 0.6, 8, 1000))
    yield requestOf(prompt, nowMs, tokensDraw(random, 200, 0.6, 1, 2000))
  }
}

export interface GroupsOptions {
  readonly groups: number
  /** Questions of a group in each stage. */
  readonly questions: number
  readonly systemTokens: number
}

const QUESTION_TOKENS = 1200
const GROUP_OUTPUT_TOKENS = 1000
/** The rate of each stage, as a multiple of the mean rate. */
const STAGES = [0.5, 0.75, 1, 1.25, 1.5]

/**
 * Groups that share a system prompt: every group asks `questions` questions in each of five stages, in any
 * order, at a rate that grows from half to one and a half times `perSecond`. Questions and answers all have
 * the same length, and no question is asked twice.
 */
export function* groupsTraffic(
  random: Random,
  perSecond: number,
  { groups, questions, systemTokens }: GroupsOptions,
): Generator<TraceRequest> {
  const ids = new PrefixIds()
  let nowMs = 0
  for (const stage of STAGES) {
    const asked = Array.from({ length: groups * questions }, (_, i) => i % groups)
    for (const group of shuffle(random, asked)) {
      nowMs += poissonGapMs(random, perSecond * stage)
      const prompt = new GrowingPrompt(ids)
      prompt.add(systemTokens, `group ${group}`)
      prompt.add(QUESTION_TOKENS)
      yield requestOf(prompt, nowMs, GROUP_OUTPUT_TOKENS)
    }
  }
}

/** Requests that `groupsTraffic` yields. */
export function groupsRequests({ groups, questions }: GroupsOptions): number {
  return STAGES.length * groups * questions
}

/** 20,000 blocks of 16 tokens: what an engine with small blocks sees of the longest prompts here. */
const DEEP_TOKENS = 320_000
const BURST = 16

/**
 * What hurts: one chain of 320,000 tokens (20,000 blocks of 16) that is asked for up to every depth, so that
 * all workers come to hold it; thousands of prompts that part behind its first block; prompts of one token;
 * the same prompt sixteen times in the same millisecond.
 *
 * The ids of a trace stand for whole prefixes, so equal blocks behind different parents cannot be said in
 * one; the index is tested with those.
 */
export function* adversarialTraffic(random: Random, perSecond: number): Generator<TraceRequest> {
  const ids = new PrefixIds()
  const PART_TOKENS = 512
  const chain = (tokens: number): GrowingPrompt => {
    const prompt = new GrowingPrompt(ids)
    for (let part = 0; prompt.tokens + PART_TOKENS <= tokens; part++) prompt.add(PART_TOKENS, `chain ${part}`)
    return prompt
  }
  for (let nowMs = 0; ; ) {
    const kind = random.next()
    const events = kind < 0.02 ? BURST : 1
    nowMs += poissonGapMs(random, perSecond / events)
    if (kind < 0.02) {
      const prompt = chain(uniformDraw(random, 1, 8) * 4096)
      prompt.add(uniformDraw(random, 1, 511), `burst ${Math.floor(nowMs)}`)
      for (let i = 0; i < BURST; i++) yield requestOf(prompt, nowMs, uniformDraw(random, 1, 50))
    } else if (kind < 0.03) {
      yield requestOf(chain(DEEP_TOKENS), nowMs, 1)
    } else if (kind < 0.5) {
      // Most are short, so that a fleet can keep up; each depth occurs.
      const prompt = chain(Math.round(512 * (DEEP_TOKENS / 512 / 4) ** random.next()))
      prompt.add(uniformDraw(random, 0, 600))
      yield requestOf(prompt, nowMs, tokensDraw(random, 50, 1, 1, 2000))
    } else if (kind < 0.9) {
      const prompt = chain(512)
      prompt.add(tokensDraw(random, 2000, 1, 1, 60_000))
      yield requestOf(prompt, nowMs, tokensDraw(random, 100, 1, 1, 4000))
    } else {
      const prompt = new GrowingPrompt(ids)
      prompt.add(1)
      yield requestOf(prompt, nowMs, kind < 0.95 ? 1 : 2000)
    }
  }
}

function requestOf(prompt: GrowingPrompt, timestampMs: number, outputTokens: number): TraceRequest {
  return { timestampMs, inputTokens: prompt.tokens, outputTokens, hashIds: prompt.hashIds() }
}
