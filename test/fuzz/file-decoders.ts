/** Readers of files: of operators, of model directories, of programs that write traces. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { WorkersFileError } from '@homing/fleet'
import { BadAdminKeysError, parseAdminKeys } from '@homing/http'
import { BadClientKeysError, BadPolicyClassesError, parseClientKeys, parsePolicyClasses } from '@homing/queue'
import {
  BadGeneratorError,
  MalformedTraceError,
  parseGenerator,
  readTrace,
  UnreadableTraceError,
} from '@homing/trace'
import { parseWorkersFile } from '../../packages/fleet/src/workers-file.ts'
import { buildDecoderTables } from '../../packages/tokenization/src/decoder/decoder-tables.ts'
import { TokenDecoder, TokenTexts } from '../../packages/tokenization/src/decoder/token-decoder.ts'
import { splitModel } from '../../packages/tokenization/src/encoder/model-bytes.ts'
import { checkModel, readModel, readModelBytes } from '../../packages/tokenization/src/encoder/read-model.ts'
import { byteOfUnit } from '../../packages/tokenization/src/encoder/token-bytes.ts'
import { Refusal, readTokenizerPlan } from '../../packages/tokenization/src/encoder/tokenizer-plan.ts'
import { RenderingRefusedError, TokenizerLoadError } from '../../packages/tokenization/src/errors.ts'
import { parseTemplate } from '../../packages/tokenization/src/template-parser.ts'
import { parseTokenizer } from '../../packages/tokenization/src/tokenizer-files.ts'
import { parseBodyLine } from '../../packages/trace/src/body-file.ts'
import { readLogLine } from '../../packages/trace/src/log-line.ts'
import { parseTraceLine } from '../../packages/trace/src/trace-line.ts'
import { type Decoder, ofBytes, ofJson, ofText, textOf } from './decoder.ts'

const BODIES = [
  '{"timestamp": 5, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}',
  '{"timestamp": 7, "body": {"prompt": [1, 2, 3]}}',
]
const CLASSES = `default_policy_family: chat
uncached_isl_buckets:
  - min_tokens: 0
    bucket: all
policy_classes:
  - name: chat
    policy_family: chat
    cache_bucket: all
    queue_policy: wspt
    quantum: 100
    prefill_busy_threshold: 5000
    prefill_busy_threshold_frac: 1.5
    request_queue_limit_per_worker: 10
`
const TRACE =
  '{"timestamp":0,"input_length":1000,"output_length":5,"hash_ids":[1,2],"session_id":"a","model":"m"}'
const LOG = [
  '{"decision_log":1,"life":"a","unix_ms":1700000000000,"timestamp":0,"selection":{"mode":"kv","policy":"cost","overlap_weight":1,"temperature":0,"kv_events":true},"workers":[{"worker":"a/0","models":["m"],"block_size":16,"kv_blocks":10,"max_batched_tokens":8192,"up":true}]}',
  '{"timestamp":1,"input_length":20,"output_length":5,"hash_ids":[1,2],"block_size":16,"model":"m","worker":"a/0","policy":"cost","predicted_tokens":16,"router_ms":0.5,"ttft_ms":10,"total_ms":50,"outcome":"ok"}',
  '{"dropped_requests":3}',
]
/** The characters that stand for the 256 bytes, as byte-level models write them. */
const BYTE_TOKENS = [...byteOfUnit().entries()].flatMap(([unit, byte]) =>
  byte < 0 ? [] : [String.fromCharCode(unit)],
)
const TOKENIZER = {
  version: '1.0',
  truncation: null,
  padding: null,
  added_tokens: [{ id: 258, content: '<s>', special: true, normalized: false }],
  normalizer: { type: 'NFC' },
  pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
  post_processor: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: false, use_regex: true },
  decoder: { type: 'ByteLevel' },
  model: {
    type: 'BPE',
    dropout: null,
    unk_token: null,
    continuing_subword_prefix: '',
    end_of_word_suffix: '',
    byte_fallback: false,
    ignore_merges: false,
    vocab: Object.fromEntries([...BYTE_TOKENS, 'ab', 'Ġab'].map((token, id) => [token, id])),
    merges: [
      ['a', 'b'],
      ['Ġ', 'ab'],
    ],
  },
}
const TEMPLATES = [
  "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}{% if message.content is string %}{{ message.content | trim }}{% else %}{{ message.content[0].text }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
  '{%- macro show(x, y=1) -%}{{ x ~ y }}{%- endmacro -%}{% set ns = namespace(a=[1, 2.5, {"b": none}]) %}{{ show(ns.a[-1:]) if tools is defined and not x else raise_exception("no") }}{# note #}',
]

const directory = mkdtempSync(join(tmpdir(), 'homing-fuzz-'))
process.on('exit', () => rmSync(directory, { recursive: true, force: true }))

function readTraceOf(name: string, bytes: Uint8Array): number {
  const path = join(directory, name)
  writeFileSync(path, bytes)
  return readTrace(path).length
}

function readTokenizer(bytes: Uint8Array): unknown {
  const split = splitModel(bytes)
  const tokenizer = split?.rest ?? parseTokenizer('directory', bytes)
  readTokenizerPlan(tokenizer)
  const model = tokenizer['model']
  if (typeof model !== 'object' || model === null) return undefined
  checkModel(model as Record<string, unknown>, true)
  const whole = () => parseTokenizer('directory', bytes)
  const quick =
    split === undefined ? undefined : readModelBytes(model as Record<string, unknown>, { ...split, whole })
  return (quick ?? readModel(whole()['model'] as Record<string, unknown>, true)).tokenCount
}

/**
 * The library of YAML takes the square of a text that is none: 5 s for 98,000 brackets. These files are the
 * operator's own and are read at the start, a changed workers file also later.
 */
const YAML_MS_MAX = 60_000

export const FILE_DECODERS: readonly Decoder[] = [
  ofText(
    'packages/queue/src/policy-class-file.ts',
    'parsePolicyClasses',
    text => parsePolicyClasses(text, 'classes.yaml'),
    {
      seeds: [CLASSES, JSON.stringify({ default_policy_family: 'chat', models: {} })],
      refusals: [BadPolicyClassesError],
      caseMsMax: YAML_MS_MAX,
    },
  ),
  ofText('packages/queue/src/client-keys.ts', 'parseClientKeys', text => parseClientKeys(text, 'keys'), {
    seeds: [
      `[{"name":"a","sha256":"${'0a'.repeat(32)}","models":["m"],"requests_per_minute":60}]`,
      `keys:\n- name: b@c\n  sha256: ${'1b'.repeat(32)}\n  concurrent_requests: 4\n  tokens_per_minute: 9000\n`,
    ],
    refusals: [BadClientKeysError],
    caseMsMax: YAML_MS_MAX,
  }),
  ofText('packages/http/src/admin-keys.ts', 'parseAdminKeys', text => parseAdminKeys(text, 'keys'), {
    seeds: [
      `[{"name":"a","sha256":"${'0a'.repeat(32)}","role":"reader"}]`,
      `keys:\n- name: b@c\n  sha256: ${'1b'.repeat(32)}\n  role: operator\n`,
    ],
    refusals: [BadAdminKeysError],
    caseMsMax: YAML_MS_MAX,
  }),
  ofText(
    'packages/fleet/src/workers-file.ts',
    'parseWorkersFile',
    text => parseWorkersFile(text, 'workers'),
    {
      seeds: [
        '# two\nhttp://10.0.0.1:8001?events=5557\nhttps://gpu:8001/engines/a # b\n',
        'workers: [http://10.0.0.1:8001, "http://10.0.0.2:8001"]',
        '- http://10.0.0.1:8001\n- &a http://10.0.0.2:8001\n',
      ],
      refusals: [WorkersFileError],
      caseMsMax: YAML_MS_MAX,
    },
  ),
  ofJson(
    'packages/trace/src/trace-line.ts',
    'parseTraceLine',
    bytes => parseTraceLine('trace.jsonl', 1, textOf(bytes), 512),
    { seeds: [TRACE], refusals: [MalformedTraceError] },
  ),
  ofJson(
    'packages/trace/src/body-file.ts',
    'parseBodyLine',
    bytes => parseBodyLine('bodies.jsonl', { line: 1, text: textOf(bytes), isComplete: true }, undefined),
    { seeds: BODIES, refusals: [MalformedTraceError] },
  ),
  ofBytes('packages/trace/src/trace-file.ts', 'readTrace', bytes => readTraceOf('trace.jsonl.gz', bytes), {
    seeds: [gzipSync(`${TRACE}\n${TRACE}\n`), gzipSync(Buffer.alloc(2 ** 20))],
    refusals: [MalformedTraceError, UnreadableTraceError],
  }),
  ofJson('packages/trace/src/log-line.ts', 'readLogLine', bytes => readLogLine(textOf(bytes)), {
    seeds: LOG,
  }),
  ofText('packages/trace/src/generators/generator.ts', 'parseGenerator', parseGenerator, {
    seeds: ['sessions', 'groups?requests=100&per_second=2', 'tenants?loop=open'],
    refusals: [BadGeneratorError],
  }),
  {
    ...ofJson('packages/tokenization/src/encoder/read-model.ts', 'readModel readModelBytes', readTokenizer, {
      seeds: [JSON.stringify(TOKENIZER), JSON.stringify({ ...TOKENIZER, normalizer: null }, null, 1)],
      refusals: [TokenizerLoadError, Refusal],
    }),
    functions: [
      'readModel',
      'readModelBytes',
      'readVocabBytes',
      'readMergesBytes',
      'splitModel',
      'parseTokenizer',
      'readTokenizerPlan',
    ],
  },
  ofText('packages/tokenization/src/template-parser.ts', 'parseTemplate', parseTemplate, {
    seeds: TEMPLATES,
    refusals: [RenderingRefusedError],
  }),
  ofJson(
    'packages/tokenization/src/decoder/decoder-tables.ts',
    'buildDecoderTables',
    bytes => {
      const tokenizer = parseTokenizer('fuzz', bytes)
      const files = {
        tokenizer,
        modelBytes: undefined,
        config: {},
        specialTokens: new Map([['eos_token', 'a']]),
      }
      const built = buildDecoderTables(files as never, tokenizer['generation'])
      if ('refusal' in built) return built
      const decoder = new TokenDecoder(new TokenTexts(built))
      return [0, 1, 2, 3].map(id => decoder.push(id))
    },
    {
      seeds: [
        JSON.stringify({
          model: { vocab: { a: 0, '▁b': 1, '<0xE4>': 2 } },
          added_tokens: [{ id: 3, content: '<s>', special: true }],
          decoder: {
            type: 'Sequence',
            decoders: [{ type: 'Replace', pattern: { String: '▁' }, content: ' ' }, { type: 'ByteFallback' }],
          },
          generation: { eos_token_id: [0, 3] },
        }),
        JSON.stringify({ model: { vocab: [['a', 0]] }, decoder: { type: 'ByteLevel' } }),
      ],
      refusals: [TokenizerLoadError],
      // As many ids as the largest one of the file says, up to 4 million.
      isUnweighed: true,
    },
  ),
]
