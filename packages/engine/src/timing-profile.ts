/**
 * Timing profiles: how long one step of an engine takes, from what is in it.
 *
 * Linear profiles, with n = tokens in the step, prefill chunks of k tokens on a context of x, decoding
 * requests with a context of y:
 *
 *   t = overhead + max(weights, linear · n) + attention · Σ k·(x + k/2) + decode · Σ y
 *
 * Source     constants of two GPU set-ups derived from published layer profiles (NVIDIA H100, Llama-3.1 8B
 *            and 70B); `mock-poly` is the built-in timing of NVIDIA Dynamo's mock engine, `mock-simple` the
 *            realistic mode of SMG's mock worker. Good enough to rank policies, not to size a cluster.
 */

/** What one step computes. */
export interface StepWork {
  /** Prompt tokens computed in this step. */
  readonly prefillTokens: number
  /** Σ k·(x + k/2) over its prefill chunks. */
  readonly prefillAttention: number
  /** Requests that produce one more token. */
  readonly decodeRequests: number
  /** Σ context over those requests, in tokens. */
  readonly decodeContextTokens: number
  /** Share of the KV blocks in use, 0 … 1. */
  readonly kvUsage: number
}

export interface TimingProfile {
  readonly name: ProfileName
  /** Milliseconds that a step takes at speed 1. */
  stepMs(work: StepWork): number
  /** KV tokens of one GPU set-up; the default size of the cache. */
  readonly kvCapacityTokens: number
  /** Tokens in one step at most. */
  readonly stepTokensMax: number
  /** Requests running at once at most. */
  readonly sequencesMax: number
}

export const PROFILE_NAMES = ['h100-8b', 'h100-70b-tp4', 'mock-poly', 'mock-simple'] as const
export type ProfileName = (typeof PROFILE_NAMES)[number]

/** The profile with this name. */
export function timingProfile(name: ProfileName): TimingProfile {
  return PROFILES[name]
}

interface LinearConstants {
  readonly overheadMs: number
  readonly weightsMs: number
  readonly msPerToken: number
  readonly msPerTokenContext: number
  readonly msPerDecodeContext: number
}

function linear(name: ProfileName, kvCapacityTokens: number, constants: LinearConstants): TimingProfile {
  return {
    name,
    kvCapacityTokens,
    stepTokensMax: 8192,
    sequencesMax: 1024,
    stepMs: work =>
      constants.overheadMs +
      Math.max(constants.weightsMs, constants.msPerToken * (work.prefillTokens + work.decodeRequests)) +
      constants.msPerTokenContext * work.prefillAttention +
      constants.msPerDecodeContext * work.decodeContextTokens,
  }
}

const PROFILES: Readonly<Record<ProfileName, TimingProfile>> = {
  'h100-8b': linear('h100-8b', 440_000, {
    overheadMs: 1,
    weightsMs: 5.5,
    msPerToken: 0.023,
    msPerTokenContext: 0.96e-6,
    msPerDecodeContext: 42e-6,
  }),
  'h100-70b-tp4': linear('h100-70b-tp4', 461_376, {
    overheadMs: 2,
    weightsMs: 16.6,
    msPerToken: 0.068,
    msPerTokenContext: 1.2e-6,
    msPerDecodeContext: 26.4e-6,
  }),
  'mock-poly': {
    name: 'mock-poly',
    kvCapacityTokens: 16_384 * 64,
    stepTokensMax: 8192,
    sequencesMax: 256,
    stepMs(work) {
      const tokens = work.prefillTokens
      const usage = work.kvUsage
      const prefillMs = tokens > 0 ? 4.209989e-7 * tokens * tokens + 1.518344e-2 * tokens + 16.50142 : 0
      const decodeMs =
        work.decodeRequests > 0 ? Math.max(1, -25.74 * usage * usage + 54.01 * usage + 5.74) : 0
      return prefillMs + decodeMs
    },
  },
  'mock-simple': {
    name: 'mock-simple',
    kvCapacityTokens: 524_288,
    stepTokensMax: 2048,
    sequencesMax: 256,
    stepMs: work => work.prefillTokens / 8 + (work.decodeRequests > 0 ? 6 + 0.35 * work.decodeRequests : 0),
  },
}
