/** Readers of HTTP bodies and heads: of clients, engines and peers. */

import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import { parseJson, shownValue } from '@homing/base'
import { BadBodyError, MistypedBodyError } from '@homing/http'
import { BodyTooLargeError } from '@homing/transport'
import { readKvUsage, readStartSeconds } from '../../actors/engine-usage/src/kv-usage.ts'
import { readPrefillAnswer } from '../../actors/gateway/src/leg-bodies.ts'
import { BadDumpError, BadRequestError } from '../../actors/index-service/src/errors.ts'
import { readDump } from '../../actors/index-service/src/peer-dump.ts'
import {
  readHashQuery,
  readPeer,
  readRegistration,
  readTokenQuery,
  readUnregistration,
} from '../../actors/index-service/src/requests.ts'
import { UnusableCheckpointError } from '../../actors/listener/src/errors.ts'
import { readJsonSnapshot } from '../../actors/listener/src/json-snapshot.ts'
import {
  faultOfPeer as faultOfReplica,
  readPeer as readReplica,
} from '../../actors/replica-bridge/src/followed-peers.ts'
import { readQuestion, readPrompt as readSelectPrompt } from '../../actors/select-service/src/questions.ts'
import {
  readOutputBlock,
  readReservation,
  readWorker,
  type WorkerSpec,
} from '../../actors/select-service/src/requests.ts'
import {
  readAddition,
  readPrompt,
  readRequestName,
  readRegistration as readSlotRegistration,
  readUnregistration as readSlotUnregistration,
} from '../../actors/slot-service/src/requests.ts'
import { parseExactJson, parseWideJson, wideJson } from '../../packages/base/src/wide-json.ts'
import { readTokens } from '../../packages/doctor/src/own-request.ts'
import { readEngineSleep, sleepStateIn } from '../../packages/fleet/src/engine-sleep.ts'
import {
  readEventSources,
  readMetrics,
  readModels,
  readServerInfo,
  readVersion,
  withTokenizerPath,
} from '../../packages/fleet/src/probe-answers.ts'
import { readGenerateEvent } from '../../packages/homing/src/generate-event.ts'
import { BodyDecoders, encodingOf, KNOWN_ENCODINGS } from '../../packages/http/src/content-encoding.ts'
import {
  BadParameterError,
  EncodingRatioError,
  MalformedEncodingError,
  UnsupportedEncodingError,
} from '../../packages/http/src/errors.ts'
import { limitOf, queryOf } from '../../packages/http/src/query.ts'
import { AnswerReader } from '../../packages/load-generator/src/answer-reader.ts'
import { answerEvent } from '../../packages/openai/src/api-error.ts'
import { continuedRequest, endsInStop, unfitRequest } from '../../packages/openai/src/continued-request.ts'
import { ContinuedStream, engineErrorOf } from '../../packages/openai/src/continued-stream.ts'
import { DeliveredStream } from '../../packages/openai/src/delivered-stream.ts'
import {
  EmptyPromptError,
  InvalidRequestError,
  MalformedJsonError,
} from '../../packages/openai/src/errors.ts'
import { beforeGivenUp } from '../../packages/openai/src/given-up.ts'
import { readFormModel } from '../../packages/openai/src/multipart.ts'
import { readRelayedRequest, readRequest } from '../../packages/openai/src/request.ts'
import { scanRequest } from '../../packages/openai/src/scan.ts'
import { StreamFormLearner } from '../../packages/openai/src/stream-form.ts'
import { parseTokenIds } from '../../packages/openai/src/token-ids.ts'
import { readTokenWishes } from '../../packages/openai/src/tokens/token-wishes.ts'
import { usageEdit } from '../../packages/openai/src/usage-edit.ts'
import { UsageTap } from '../../packages/openai/src/usage-tap.ts'
import { RenderingRefusedError } from '../../packages/tokenization/src/errors.ts'
import { tryParseJson } from '../../packages/tokenization/src/json.ts'
import { type Decoder, ofBytes, ofJson, ofText, textOf } from './decoder.ts'

const CHAT = {
  model: 'llama',
  messages: [
    { role: 'system', content: 'Answer in one word.' },
    { role: 'user', content: [{ type: 'text', text: 'Where is the "Eiffel" tower? \\ é' }] },
  ],
  stream: true,
  stream_options: { include_usage: false },
  n: 1,
  max_completion_tokens: 16,
  cache_salt: 'tenant',
  nvext: {
    backend_instance_id: 3,
    agent_hints: { priority: 1, strict_priority: 2, osl: 100, latency_sensitivity: 0.5 },
    routing_constraints: { required_taints: ['gpu'], preferred_taints: { fast: 1 } },
    annotations: ['worker_instance_id'],
    token_data: [1, 2, 3],
  },
  router_config_override: { overlap_score_weight: 0.5, router_temperature: 0.1 },
}
const BODIES = [
  JSON.stringify(CHAT),
  JSON.stringify({ model: 'llama', prompt: [[1, 2, 3], [4]], max_tokens: 4 }),
  JSON.stringify({ model: 'llama', prompt: ['a', 'b'], stream: false }),
  JSON.stringify({ model: 'llama', token_ids: [1, 2, 4294967295] }),
]
const HEADERS = { 'x-tenant-id': 'a', 'x-priority': '3' }
const EVENTS = [
  'data: {"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n' +
    'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"system_fingerprint":"f"}\n\n' +
    'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":2}}}\n\n' +
    'data: [DONE]\n\n',
  'event: response.completed\r\ndata: {"type":"response.completed","response":{"id":"r","object":"response","usage":{"input_tokens":3,"output_tokens":4}}}\r\n\r\n',
  ': comment\n\ndata: {"error":{"message":"no"}}\n\n',
  'data: {"choices":[{"index":0,"text":"x","token_ids":[1,4294967295],"finish_reason":"abort"}]}\n\n',
]
const ANSWER =
  '{"id":"a","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":4}}'
const ERRORS = [
  '{"error":{"message":"no","type":"t","param":null,"code":"c"}}',
  '{"object":"error","message":"no","code":400}',
]
const METRICS = `# HELP vllm:kv_cache_usage_perc KV-cache usage
vllm:cache_config_info{block_size="16",cache_dtype="auto",num_gpu_blocks="27000",engine="0"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="a \\"b\\""} 0.25
vllm:kv_cache_usage_perc{engine="1"} 1e-3
sglang:token_usage{dp_rank="1"} 0.5
process_start_time_seconds 1.7e9
`
const FORM = Buffer.from(
  '--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--b--\r\n',
)
const DUMP =
  '{"llama:default":{"block_size":16,"endpoints":{"7":{"0":"tcp://10.0.0.1:5557"}},"events":[{"worker_id":7,"storage_tier":"device","event":{"event_id":0,"dp_rank":0,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":17357386176853808775,"tokens_hash":-5}]}}}}]}}'
/** Labels that are read, and such as a later version may write. */
const LABELLED_DUMP =
  '{"llama:default":{"block_size":16,"events":[{"worker_id":7,"event":{"event_id":0,"data":{"stored":{"blocks":[{"block_hash":1,"tokens_hash":2,"moe_metadata":{"layer_id":3,"expert_id":1},"cxl_metadata":{"state":"cxl_pooled","pool_id":5,"accessible_workers":[8]}},{"block_hash":3,"tokens_hash":4,"moe_metadata":{"layer_id":3},"cxl_metadata":{"state":"remote_cxl"}},{"block_hash":5,"tokens_hash":6,"cxl_metadata":{"state":"cxl_pooled","workers_of":0}}]}}}},{"worker_id":7,"event":{"event_id":1,"data":{"cxl_state_transition":{"block_hashes":[5],"sequence_hashes":[6],"new_state":"cxl_pooled","pool_id":5,"accessible_workers":[8],"moe_metadata":[null]}}}}]}}'
const DECODED_BYTES_MAX = 256 * 1024
const LARGE = Buffer.alloc(16 * DECODED_BYTES_MAX)
const COMPRESSED = [gzipSync, deflateSync, brotliCompressSync, zstdCompressSync].flatMap(compress => [
  compress(BODIES[0]!),
  compress(LARGE),
])

/** What `tryJson` of a probe does first. */
function parsed(bytes: Uint8Array): unknown {
  try {
    return parseJson(textOf(bytes))
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

/** In pieces of all sizes, as a socket gives them. */
function tapped(tap: UsageTap, bytes: Uint8Array): unknown {
  let passed = 0
  for (let at = 0, size = 1; at < bytes.length; at += size, size = 1 + ((size * 7) % 4096)) {
    passed += tap.push(bytes.subarray(at, at + size)).length
  }
  passed += tap.takeWhole().length + tap.takeRest().length
  return [tap.finish(), passed]
}

function answered(isStream: boolean, bytes: Uint8Array): unknown {
  const reader = new AnswerReader(isStream, () => {})
  for (let at = 0, size = 1; at < bytes.length; at += size, size = 1 + ((size * 7) % 4096))
    reader.push(bytes.subarray(at, at + size), at)
  reader.end(bytes.length)
  return [reader.fault, reader.chunks, reader.counts]
}

/** Half a character may come in one event, and something else in the next. */
function deliveredText(stream: DeliveredStream): unknown {
  try {
    return stream.read()
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

const bodyDecoders = new BodyDecoders()

async function decodedEach(body: Uint8Array): Promise<unknown> {
  const sizes: number[] = []
  for (const encoding of KNOWN_ENCODINGS) {
    try {
      sizes.push((await bodyDecoders.decode(encoding, body, DECODED_BYTES_MAX, () => {})).length)
    } catch (error) {
      const isRefusal =
        error instanceof MalformedEncodingError ||
        error instanceof EncodingRatioError ||
        error instanceof BodyTooLargeError
      if (!isRefusal) throw error
    }
  }
  return sizes
}

const CLIENT_ERRORS = [MalformedJsonError, InvalidRequestError, EmptyPromptError]

export const BODY_DECODERS: readonly Decoder[] = [
  ofJson(
    'packages/openai/src/request.ts',
    'readRequest readRelayedRequest',
    bytes => {
      const scan = scanRequest(bytes)
      return [readRelayedRequest(bytes, scan, HEADERS), readRequest(bytes, scan, HEADERS)].length
    },
    { seeds: BODIES, refusals: CLIENT_ERRORS },
  ),
  ofJson('packages/openai/src/scan.ts', 'scanRequest', bytes => scanRequest(bytes).members, {
    seeds: BODIES,
    refusals: CLIENT_ERRORS,
  }),
  ofJson('packages/openai/src/usage-edit.ts', 'usageEdit', bytes => usageEdit(bytes, scanRequest(bytes)), {
    seeds: BODIES,
    refusals: CLIENT_ERRORS,
  }),
  ofJson(
    'packages/openai/src/token-ids.ts',
    'parseTokenIds',
    bytes => {
      const range = scanRequest(bytes).byName.get('token_ids')?.value
      return range === undefined ? undefined : parseTokenIds(bytes, range, 'token_ids')
    },
    { seeds: [BODIES[3]!], refusals: CLIENT_ERRORS },
  ),
  ofBytes(
    'packages/openai/src/multipart.ts',
    'readFormModel',
    bytes => [readFormModel(bytes, 'multipart/form-data; boundary=b'), readFormModel(FORM, textOf(bytes))],
    { seeds: [FORM, 'multipart/form-data; boundary="b"'] },
  ),
  ofText(
    'packages/load-generator/src/answer-reader.ts',
    'AnswerReader',
    text => [answered(true, Buffer.from(text)), answered(false, Buffer.from(text))],
    { seeds: [...EVENTS, ANSWER] },
  ),
  ofText(
    'packages/openai/src/usage-tap.ts',
    'UsageTap',
    text => {
      const form = { sendsUsage: false, usage: 'absent', lastMembers: ['system_fingerprint'] } as const
      const bytes = Buffer.from(text)
      return [tapped(new UsageTap('sse', { mendsTo: form }), bytes), tapped(new UsageTap('json'), bytes)]
    },
    { seeds: [...EVENTS, ANSWER] },
  ),
  ofText(
    'packages/openai/src/delivered-stream.ts',
    'DeliveredStream',
    text => {
      const bytes = Buffer.from(text)
      return (['chat', 'completions'] as const).map(form => {
        const stream = new DeliveredStream(form, () => true)
        stream.push(bytes)
        stream.push(bytes)
        return [beforeGivenUp(bytes), stream.unfit ?? deliveredText(stream)]
      })
    },
    { seeds: EVENTS },
  ),
  ofText(
    'packages/openai/src/continued-stream.ts',
    'ContinuedStream',
    text => {
      const bytes = Buffer.from(text)
      const parts = {
        form: 'chat',
        sample: undefined,
        promptTokens: 1,
        deliveredTokens: 1,
        isAnew: false,
      } as const
      return [new ContinuedStream(parts).convert(bytes).length, engineErrorOf(bytes)?.message]
    },
    { seeds: EVENTS },
  ),
  ofJson(
    'packages/openai/src/continued-request.ts',
    'unfitRequest',
    bytes => [
      unfitRequest(bytes),
      endsInStop(bytes, 'a'),
      continuedRequest(bytes, Int32Array.of(1), { tokensMax: 1, tokensMin: undefined }, false).length,
    ],
    { seeds: BODIES, refusals: [MalformedJsonError] },
  ),
  ofJson('actors/gateway/src/leg-bodies.ts', 'readPrefillAnswer', readPrefillAnswer, {
    seeds: [
      '{"choices":[{"index":0,"text":"a","finish_reason":"length"}],"kv_transfer_params":{"remote_engine_id":"e","remote_block_ids":[1,2],"remote_port":5600}}',
      '{"type":"message","stop_reason":"max_tokens","kv_transfer_params":null}',
      '{"object":"response","status":"completed"}',
    ],
  }),
  ofJson(
    'packages/homing/src/generate-event.ts',
    'readGenerateEvent',
    bytes => readGenerateEvent(textOf(bytes)),
    {
      seeds: [
        '{"choices":[{"index":0,"text":" a","token_ids":[5,6],"finish_reason":"length"}]}',
        '{"choices":[],"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":1}}}',
        '{"error":{"message":"no","code":"model_not_found"}}',
      ],
    },
  ),
  ofText(
    'packages/openai/src/stream-form.ts',
    'StreamFormLearner',
    text => {
      const learner = new StreamFormLearner()
      for (const event of text.split(/(?<=\n\n)/)) learner.observe(Buffer.from(event))
      return learner.form()
    },
    { seeds: EVENTS },
  ),
  ofJson(
    'packages/openai/src/api-error.ts',
    'answerEvent',
    bytes =>
      ([200, 400, 500] as const).flatMap(status =>
        (['completions', 'responses', 'messages'] as const).map(form => answerEvent(status, bytes, form)),
      ),
    { seeds: [...ERRORS, ANSWER] },
  ),
  ofBytes('packages/http/src/content-encoding.ts', 'BodyDecoders', decodedEach, { seeds: COMPRESSED }),
  ofText(
    'packages/http/src/content-encoding.ts',
    'encodingOf',
    text => encodingOf({ 'content-encoding': text }),
    {
      seeds: ['gzip', 'x-gzip', 'identity', 'br, gzip'],
      refusals: [UnsupportedEncodingError],
    },
  ),
  ofText(
    'packages/http/src/query.ts',
    'queryOf limitOf',
    text => limitOf(queryOf({ path: '/x', query: text }, ['limit', 'format']).limit, { default: 5, max: 10 }),
    { seeds: ['limit=5&format=text', ''], refusals: [BadParameterError] },
  ),
  ofJson(
    'packages/fleet/src/engine-sleep.ts',
    'readEngineSleep sleepStateIn',
    bytes => [readEngineSleep(parsed(bytes), 'kept'), sleepStateIn(textOf(bytes))],
    {
      seeds: [
        '{"is_sleeping":true}',
        'vllm:engine_sleep_state{engine="0",sleep_state="discard_all"} 1.0',
      ].map(text => Buffer.from(text)),
    },
  ),
  ofJson(
    'packages/fleet/src/probe-answers.ts',
    'readModels readServerInfo readEventSources readVersion withTokenizerPath',
    bytes => {
      const body = parsed(bytes)
      const list = readModels(body)
      return [
        withTokenizerPath(list?.models ?? [], body),
        readServerInfo(body, '10.0.0.1'),
        readEventSources(body, '10.0.0.1'),
        readVersion(body),
        shownValue(body),
      ]
    },
    {
      seeds: [
        '{"object":"list","data":[{"id":"llama","owned_by":"vllm","parent":null,"root":"/models/llama","max_model_len":8192}]}',
        '{"version":"0.32.0","vllm_config":{"cache_config":{"block_size":16},"scheduler_config":{"max_num_batched_tokens":8192}}}',
        '{"page_size":64,"dp_size":2,"max_total_num_tokens":1000,"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557,"dp_size":2,"replay_endpoint_port_base":6557,"block_size":64,"publishers":[{"dp_rank":0,"endpoint":"tcp://*:5557"}]}}',
        '[{"data_parallel_rank":0,"endpoint":"tcp://*:5557","replay_endpoint":"tcp://10.0.0.1:6557","topic":"kv"}]',
        '{"0":{"endpoint":"tcp://gpu:5557"}}',
        '{"tokenizer_path":"/models/llama"}',
      ],
    },
  ),
  ofJson('packages/doctor/src/own-request.ts', 'readTokens', bytes => readTokens(parsed(bytes)), {
    seeds: ['{"tokens":[1,2,3],"count":3}'],
  }),
  ofText('packages/fleet/src/probe-answers.ts', 'readMetrics', readMetrics, { seeds: [METRICS] }),
  ofText(
    'actors/engine-usage/src/kv-usage.ts',
    'readKvUsage readStartSeconds',
    text => [[...readKvUsage(text)], readStartSeconds(text)],
    { seeds: [METRICS] },
  ),
  ofJson(
    'actors/index-service/src/requests.ts',
    'readRegistration readUnregistration readTokenQuery readHashQuery readMoeQuery readPeer',
    bytes => {
      const results: unknown[] = []
      for (const read of [readRegistration, readUnregistration, readTokenQuery, readHashQuery, readPeer]) {
        try {
          results.push(read(bytes))
        } catch (error) {
          if (!(error instanceof BadRequestError)) throw error
        }
      }
      return results
    },
    {
      seeds: [
        '{"instance_id":18446744073709551615,"model_name":"llama","dp_rank":1,"block_size":16,"endpoint":"tcp://10.0.0.1:5557","replay_endpoint":"ipc:///tmp/a"}',
        '{"model_name":"llama","token_ids":[1,2,3],"lora_name":"a","cache_salt":"b"}',
        '{"model_name":"llama","block_hashes":[-5,17357386176853808775],"moe_query":{"layer_id":3,"expert_ids":[1],"expert_group":0,"fallback_to_unlabeled":false}}',
        '{"url":"http://10.0.0.2:8090/a/"}',
      ],
    },
  ),
  ofJson(
    'actors/slot-service/src/requests.ts',
    'readRegistration readUnregistration readAddition readRequestName readPrompt',
    bytes => {
      const results: unknown[] = []
      const named = (body: Uint8Array) => readRequestName('free the request', body)
      const readers = [readSlotRegistration, readSlotUnregistration, readAddition, named, readPrompt]
      for (const read of readers) {
        try {
          results.push(read(bytes))
        } catch (error) {
          if (!isRefusal(error)) throw error
        }
      }
      return results
    },
    {
      seeds: [
        '{"worker_id":18446744073709551615,"model_name":"llama","block_size":16,"dp_start":4,"dp_size":2}',
        '{"model_name":"llama","request_id":"a","worker_id":"7","dp_rank":1,"sequence_hashes":[-5,"17357386176853808775"],"new_isl_tokens":40}',
      ],
    },
  ),
  ofJson(
    'actors/replica-bridge/src/followed-peers.ts',
    'readPeer faultOfPeer',
    bytes => [faultOfReplica(textOf(bytes)), readReplica(bytes)],
    { seeds: ['{"endpoint":"tcp://10.0.0.2:5801"}'], refusals: [BadBodyError, MistypedBodyError] },
  ),
  ofJson(
    'actors/select-service/src/requests.ts',
    'readWorker readReservation readOutputBlock',
    bytes => {
      const results: unknown[] = []
      for (const read of [readWorker, readReservation, readOutputBlock]) {
        try {
          const result = read(bytes)
          results.push(result)
          if (read === readWorker) results.push(readWorker(bytes, result as WorkerSpec))
        } catch (error) {
          if (!isRefusal(error)) throw error
        }
      }
      return results
    },
    {
      seeds: [
        '{"worker_id":18446744073709551615,"model_name":"llama","endpoint":"http://10.0.0.2:8000","block_size":16,"data_parallel_size":2,"kv_events_endpoints":{"0":"tcp://10.0.0.2:5557"},"replay_endpoint":"tcp://10.0.0.2:6557","taints":["a"],"lifecycle":"draining"}',
        '{"selection_id":"a","worker_id":7,"dp_rank":1,"sequence_hashes":[-5],"isl_tokens":40,"effective_prefill_tokens":8,"track_prefill_tokens":false}',
        '{"decay_fraction":0.5}',
      ],
    },
  ),
  ofJson(
    'actors/select-service/src/questions.ts',
    'readQuestion readPrompt',
    bytes => {
      const results: unknown[] = []
      for (const read of [readQuestion, readSelectPrompt]) {
        try {
          const question = read('select a worker', bytes)
          results.push(question, question.prompt(16))
        } catch (error) {
          if (!isRefusal(error)) throw error
        }
      }
      return results
    },
    {
      seeds: [
        '{"model_name":"llama","token_ids":[1,2,3,4],"lora_name":"a","cache_salt":"b","mm_routing_info":{"mm_objects":[{"mm_hash":1,"offsets":[[0,2]]}]},"router_config_override":{"router_temperature":0.5,"assume_kv_reuse":true}}',
        '{"selection_id":"a","block_hashes":[-5],"sequence_hashes":["17357386176853808775"],"isl_tokens":40,"pinned_worker":{"worker_id":7,"dp_rank":1},"allowed_worker_ids":["7"],"routing_constraints":{"required_taints":["a"],"preferred_taints":{"b":-1}},"explain":true}',
      ],
    },
  ),
  ofJson(
    'packages/openai/src/tokens/token-wishes.ts',
    'readTokenWishes',
    bytes => [readTokenWishes(bytes, 'chat'), readTokenWishes(bytes, 'completions')],
    {
      seeds: [
        '{"model":"m","messages":[],"max_tokens":5,"stop":["a"],"stop_token_ids":[4],"stream":true,"stream_options":{"include_usage":true},"temperature":0.5}',
        '{"prompt":[1,2],"n":1,"ignore_eos":true,"min_tokens":2,"logprobs":false,"cache_salt":"s"}',
      ],
      refusals: [InvalidRequestError, MalformedJsonError],
    },
  ),
  ofJson(
    'actors/index-service/src/peer-dump.ts',
    'readDump readExpert readPlace readTransition',
    bytes => readDump('http://10.0.0.2:8090', bytes),
    {
      seeds: [DUMP, LABELLED_DUMP],
      refusals: [BadDumpError],
    },
  ),
  ofJson(
    'actors/listener/src/json-snapshot.ts',
    'readJsonSnapshot readRouterEvent',
    bytes => readJsonSnapshot(bytes, 0),
    {
      seeds: [
        '[{"worker_id":7,"storage_tier":"device","event":{"event_id":0,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":18446744073709551615,"tokens_hash":5},{"block_hash":2,"tokens_hash":6}]}},"dp_rank":0}},{"worker_id":7,"event":{"event_id":1,"data":"cleared"}}]',
      ],
      refusals: [UnusableCheckpointError],
    },
  ),
  ofJson(
    'packages/base/src/wide-json.ts',
    'parseWideJson',
    bytes => wideJson(parseWideJson(textOf(bytes))).length,
    {
      seeds: [DUMP, '[12345678901234567890,-1234567890123456.5e3,"12345678901234567890"]'],
      refusals: [SyntaxError],
    },
  ),
  ofJson(
    'packages/base/src/wide-json.ts',
    'parseExactJson',
    bytes => wideJson(parseExactJson(textOf(bytes))).length,
    {
      seeds: ['{"a":[1,18446744073709551615,-9223372036854775808,1e20],"b":{"c":"1234567890123456"}}'],
      refusals: [SyntaxError],
    },
  ),
  ofJson('packages/tokenization/src/json.ts', 'tryParseJson', bytes => tryParseJson(textOf(bytes)), {
    seeds: [...BODIES, DUMP],
    refusals: [RenderingRefusedError],
  }),
  ofJson('packages/base/src/parse-json.ts', 'parseJson', bytes => parseJson(textOf(bytes)), {
    seeds: [...BODIES, DUMP],
    refusals: [SyntaxError],
  }),
]

function isRefusal(error: unknown): boolean {
  return error instanceof BadBodyError || error instanceof MistypedBodyError
}
