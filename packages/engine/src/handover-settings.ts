/** Settings of a simulated engine that computes prompts for others, or goes on where others have computed. */

export const ENGINE_ROLES = ['both', 'prefill', 'decode'] as const
export type EngineRole = (typeof ENGINE_ROLES)[number]

export const ENGINE_HANDOVERS = ['kv_transfer', 'bootstrap'] as const
export type EngineHandover = (typeof ENGINE_HANDOVERS)[number]

/** What a request says of a hand-over; undefined: it has no part in one. */
export type HandoverWish =
  | { readonly kind: 'offer' }
  | { readonly kind: 'take'; readonly host: string; readonly port: number; readonly id: string }
  | { readonly kind: 'meet'; readonly host: string; readonly port: number; readonly room: string }

/** A part of `EngineSettings`. */
export interface HandoverSettings {
  /** Which part of a request it takes. */
  readonly role: EngineRole
  /** How it hands prompts over, or takes them over: as vLLM does, or as SGLang does. */
  readonly handover: EngineHandover
  /** How long a computed prompt is held for the engine that takes it over, and that one waits for it. */
  readonly handoverMsMax: number
  /** How long a hand-over takes, in milliseconds of the simulation: this much, and as much more per token. */
  readonly transferMs: number
  readonly transferMsPerToken: number
}

export const DEFAULT_HANDOVER_SETTINGS: HandoverSettings = {
  role: 'both',
  handover: 'kv_transfer',
  handoverMsMax: 30_000,
  transferMs: 0,
  transferMsPerToken: 0,
}

/**
 * How long it takes until the blocks of a prompt are there, in real milliseconds. The last block moves whole.
 * Speed 0 does not wait.
 */
export function transferMsOf(
  {
    transferMs,
    transferMsPerToken,
    blockSizeTokens,
    speed,
  }: Pick<HandoverSettings, 'transferMs' | 'transferMsPerToken'> & {
    readonly blockSizeTokens: number
    readonly speed: number
  },
  promptTokens: number,
): number {
  if (speed === 0) return 0
  const tokens = Math.ceil(promptTokens / blockSizeTokens) * blockSizeTokens
  return (transferMs + transferMsPerToken * tokens) / speed
}

/** Of the command line; a part of `ENGINE_OPTIONS`. */
export const HANDOVER_OPTIONS = [
  {
    key: 'role',
    name: 'role',
    group: 'Prefill and decode apart',
    kind: 'choice',
    choices: ENGINE_ROLES,
    default: 'both',
    aliases: ['disaggregation-mode'],
    env: 'HOMING_ENGINE_ROLE',
    help: 'Which part of a request it takes. prefill: it computes prompts and hands them over. decode: it goes on with such prompts. With the handover bootstrap, either refuses requests without one, as SGLang does.',
  },
  {
    key: 'handover',
    name: 'handover',
    group: 'Prefill and decode apart',
    kind: 'choice',
    choices: ENGINE_HANDOVERS,
    default: 'kv_transfer',
    env: 'HOMING_ENGINE_HANDOVER',
    help: 'How prompts are handed over. kv_transfer: by kv_transfer_params, as vLLM does. bootstrap: by bootstrap_host, bootstrap_port and bootstrap_room, as SGLang does; both engines meet at the HTTP port of the one with role prefill.',
  },
  {
    key: 'handoverMsMax',
    name: 'handover-timeout-ms',
    group: 'Prefill and decode apart',
    kind: 'integer',
    default: 30_000,
    min: 1,
    max: 3_600_000,
    unit: 'ms',
    env: 'HOMING_ENGINE_HANDOVER_TIMEOUT_MS',
    help: 'How long a computed prompt is held for the engine that takes it over, and how long that one waits for it.',
  },
  {
    key: 'transferMs',
    name: 'kv-cache-transfer-latency',
    group: 'Prefill and decode apart',
    kind: 'number',
    default: 0,
    min: 0,
    max: 3_600_000,
    unit: 'ms',
    env: 'HOMING_ENGINE_KV_CACHE_TRANSFER_LATENCY',
    help: 'How long every hand-over takes at least, where the prompt is taken over; divided by --speed.',
  },
  {
    key: 'transferMsPerToken',
    name: 'kv-cache-transfer-time-per-token',
    group: 'Prefill and decode apart',
    kind: 'number',
    default: 0,
    min: 0,
    max: 1000,
    unit: 'ms',
    env: 'HOMING_ENGINE_KV_CACHE_TRANSFER_TIME_PER_TOKEN',
    help: 'How much longer it takes for each token of the prompt, in whole blocks. 128 KiB per token at 64 GB/s are 0.002 ms.',
  },
] as const
