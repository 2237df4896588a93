/** An engine's answers about itself: models, event sources, server info. Pure. */

import type { ResolvedEngineSettings } from './engine-settings.ts'
import type { RankEndpoints } from './engine-state.ts'

/** GET /v1/models. `startSeconds`: seconds since 1970 when this life of the engine began. */
export function modelsAnswer(settings: ResolvedEngineSettings, startSeconds: number) {
  const { model, tokenizer, adapters, contextTokensMax } = settings
  const created = Math.floor(startSeconds)
  const card = (id: string, root: string, parent: string | null) => ({
    id,
    object: 'model',
    created,
    owned_by: 'vllm',
    root,
    parent,
    max_model_len: parent === null ? contextTokensMax : null,
    permission: [],
  })
  return {
    object: 'list',
    data: [card(model, tokenizer ?? model, null), ...adapters.map(name => card(name, name, model))],
  }
}

/** GET /kv_event_sources, as vLLM answers it. `isFirst`: every rank names the sockets of the first. */
export function eventSourcesAnswer(
  settings: ResolvedEngineSettings,
  endpoints: readonly RankEndpoints[],
  isFirst: boolean,
): Record<string, unknown> {
  const sources: Record<string, unknown> = {}
  for (const { rank, ...own } of endpoints) {
    const { eventsPort, replayPort, atBroker } = isFirst ? endpoints[0]! : own
    sources[rank] = {
      enable_kv_cache_events: true,
      publisher: atBroker === undefined ? 'zmq' : 'nats',
      endpoint: atBroker ?? `tcp://*:${eventsPort}`,
      replay_endpoint: replayPort === undefined ? null : (atBroker ?? `tcp://*:${replayPort}`),
      buffer_steps: settings.replayBatchesMax,
      hwm: 100_000,
      max_queue_size: 100_000,
      topic: settings.topic,
    }
  }
  return sources
}

/** GET /server_info, as SGLang answers it. */
export function serverInfoAnswer(
  settings: ResolvedEngineSettings,
  endpoints: readonly RankEndpoints[],
  port: number,
) {
  const { blockSizeTokens, ranks, model, tokenizer, stepTokensMax, sequencesMax, blocks } = settings
  const first = endpoints[0]
  return {
    model_path: tokenizer ?? model,
    served_model_name: model,
    page_size: blockSizeTokens,
    dp_size: ranks,
    chunked_prefill_size: stepTokensMax,
    max_running_requests: sequencesMax,
    max_total_num_tokens: (blocks - 1) * blockSizeTokens,
    disaggregation_mode: settings.role === 'both' ? 'null' : settings.role,
    disaggregation_bootstrap_port: port,
    version: settings.version,
    internal_states: [],
    kv_events:
      first === undefined
        ? null
        : {
            publisher: 'zmq',
            endpoint_host: '*',
            endpoint_port_base: first.eventsPort,
            topic: settings.topic,
            block_size: blockSizeTokens,
            dp_size: ranks,
            ...(first.replayPort === undefined ? {} : { replay_endpoint_port_base: first.replayPort }),
          },
  }
}
