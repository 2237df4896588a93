/**
 * Engine sleep: vLLM with --enable-sleep-mode gives its memory to others for a while (POST /sleep), and
 * takes requests again after POST /wake_up. With VLLM_SERVER_DEV_MODE=1 it answers GET /is_sleeping, and its
 * metrics say how deep it sleeps:
 *
 *   vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0
 *   vllm:engine_sleep_state{engine="0",sleep_state="weights_offloaded"} 1      level 1
 *   vllm:engine_sleep_state{engine="0",sleep_state="discard_all"} 0            level 2
 *
 * At levels 1 and 2 its KV cache is gone. Where no level is told it is taken to be gone: a prefix that is
 * believed in and not there costs more than one that is not believed in.
 */

const SLEEP_LINE_CHARACTERS_MAX = 2048

/** What metrics say: 'kept' is asleep with nothing discarded; undefined: they do not say. */
export type SleepState = 'awake' | 'kept' | 'discarded' | undefined

export interface EngineSleep {
  readonly isAsleep: boolean
  readonly hasCache: boolean
}

/** `answer` of GET /is_sleeping. Undefined: the engine does not say whether it sleeps. */
export function readEngineSleep(answer: unknown, state: SleepState): EngineSleep | undefined {
  if (typeof answer !== 'object' || answer === null) return undefined
  const { is_sleeping: isAsleep } = answer as { readonly is_sleeping?: unknown }
  if (typeof isAsleep !== 'boolean') return undefined
  return { isAsleep, hasCache: !isAsleep || state === 'kept' }
}

/** Its label `sleep_state`, where a line of its metrics says 1; undefined: it is another line. */
export function sleepStateIn(line: string): 'awake' | 'discarded' | 'no' | undefined {
  // A longer one would take the square of its length.
  if (line.length > SLEEP_LINE_CHARACTERS_MAX) return undefined
  const [, state, value] =
    /^vllm:engine_sleep_state\{[^}]*\bsleep_state="(\w{1,40})"[^}]*\} ([\d.]+)$/.exec(line) ?? []
  if (state === undefined) return undefined
  if (Number(value) !== 1) return 'no'
  return state === 'awake' ? 'awake' : 'discarded'
}

/** Why a worker gets no requests, for people; undefined: it is awake, or does not say. */
export function sleepReason(sleep: EngineSleep | undefined): string | undefined {
  if (sleep?.isAsleep !== true) return undefined
  return sleep.hasCache
    ? 'its engine sleeps and has kept its cache: POST /wake_up wakes it'
    : 'its engine sleeps, and its cache is gone: POST /wake_up wakes it'
}
