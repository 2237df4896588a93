/**
 * Finds readers that the fuzzer does not feed: exported functions that are named like one, and files that
 * call a decoder. What others did not write is let through here, with the reason.
 */

import type { Repository } from '../repository.ts'
import type { Decoder } from './decoder.ts'

/** Folders and files whose input is not of others, or is no message. */
const OWN: Readonly<Record<string, string>> = {
  'packages/engine/': 'the simulated engine, for tests and the demo: the port is of the one who starts it',
  'packages/simulate/': 'files of one who runs the simulator, in a process of its own',
  'packages/actor/': 'memory and messages of the threads of one process',
  'packages/config/src/': 'command line, variables and file of the operator, before anything runs',
  'packages/selection/': 'the decode step of engines, no decoder; names that this process has made',
  'packages/page/': 'files that were built with this version',
  'packages/homing/src/admin-key-file.ts': 'a file that the operator named',
  'packages/homing/src/engine-access.ts': 'certificates that the operator named, for OpenSSL to read',
  'packages/homing/src/router-inputs.ts': 'files that the operator named; their readers are in the list',
  'packages/homing/src/version.ts': 'the package.json of this version',
  'packages/homing/src/demo-load.ts': 'answers of the engines of the demo, which this process runs',
  'packages/metrics/src/build-info.ts': 'the package.json of this version',
  'packages/base/src/log.ts': 'a line that this process has written',
  'packages/blocks/src/hash64.ts': 'a text of 16 digits at most, of this process',
  'packages/fleet/src/engine-keys.ts': 'a file or variable that the operator named',
  'packages/transport/src/zmq/library.ts': 'frames from libzmq, each with FRAME_BYTES_MAX at most',
  'packages/transport/src/zmq/batch.ts': 'what one thread of this process tells another',
  'packages/placement/src/request-leg.ts': 'the decode leg of a request, no decoder',
  'packages/protocol/src/block-labels.ts': 'parts of an event; decodeKvBatch is in the list',
  'packages/protocol/src/kv-event-fields.ts': 'parts of an event; decodeKvBatch is in the list',
  'packages/protocol/src/sealed-body.ts': 'decodeMessagePack; its readers are in the list',
  'packages/index/': 'shared memory of this process',
  'packages/load/': 'the decode step of engines, no decoder',
  'actors/directory/src/prompt-audits.ts': 'names that this actor has made itself',
  'actors/tokenizer/src/prompt-tokens.ts': 'names that this actor has made itself',
  'actors/tokenizer/src/model-table.ts': 'the command line of the operator',
  'actors/tokenizer/src/chat-options.ts': 'the command line of the operator',
  'actors/tokenizer/src/body-reader.ts': 'parts of a body that scanRequest has passed: its depth is bounded',
  'actors/tokenizer/src/tokenize-body.ts':
    'parts of a body that scanRequest has passed: its depth is bounded',
  'actors/console/src/': 'bodies of the operator: parseJson, then a few members by name',
  'actors/gateway/src/fleet-views.ts': 'a list that this actor has made itself',
  'actors/gateway/src/client-models.ts': 'parseJson of a member of what scanRequest has passed',
  'actors/gateway/src/next-turn.ts': 'parseJson of what scanRequest and UsageTap have passed',
  'packages/fleet/src/probe.ts': 'parseJson; the readers of what it gives are in the list',
  'packages/load-generator/src/sender.ts': 'parseJson of an error, of which one text is taken',
  'packages/load-generator/src/target.ts': 'parseJson of GET /v1/models, of which one text is taken',
  'packages/doctor/src/recorded-http.ts': 'parseJson; the readers of what it gives are in the list',
  'packages/discovery/src/dns/dns-name.ts': 'command line of the operator, before anything runs',
  'packages/discovery/src/kubernetes/cluster-access.ts': 'a kubeconfig that the operator named',
  'packages/homing/src/worker-discovery.ts':
    'settings of the operator; readers of files in it are in the list',
  'packages/trace/src/decision-log-file.ts': 'line by line, by readLogLine',
}

const READER = /^export (?:async )?function\*? ((?:decode|parse|read|skim|scan)[A-Z]\w*)/gm
const CALLED = [
  ...['JSON\\.parse', 'parseJson', 'decodeMessagePack', 'parseDocument', 'new MessagePackReader'],
  ...['gunzipSync', 'createGunzip', 'createInflate', 'createInflateRaw'],
  ...['createBrotliDecompress', 'createZstdDecompress'],
]
const CALL = new RegExp(`\\b(?:${CALLED.join('|')})\\(`)
/** JSON.parse itself, where its depth is bounded otherwise. */
const BARE: Readonly<Record<string, string>> = {
  'packages/base/src/parse-json.ts': 'the door itself',
  'packages/openai/src/request.ts': 'parts of a body that scanRequest has passed',
  'packages/openai/src/scan.ts': 'one string',
  'packages/tokenization/src/json.ts': 'one string',
  'packages/tokenization/src/encoder/model-bytes.ts': 'one string',
  'packages/base/src/wide-json.ts': 'a text that parseJson has passed',
}
/** Functions beside those of the list in files of the list. */
const INNER: Readonly<Record<string, string>> = {
  scanPoint: 'notes a place in bytes that scanRequest has passed',
  scanTrace: 'of requests that parseTraceLine has read',
  readTokenizerFiles: 'reads the files of a directory; parseTokenizer and parseTemplate read their content',
  readWorkersFile: 'the text of the file, bounded; parseWorkersFile reads it',
  readBoundedFile: 'the text of a file that the operator named; its readers are in the list',
  readRelayed: 'of a relayed body; scanRequest, readRelayedRequest and readFormModel read it',
  readKeyEntries: 'of the text of a file; parseClientKeys and parseAdminKeys read through it',
  readYaml: 'of the text of a file; parseClientKeys and parseWorkersFile read through it',
  readFollowedFiles: 'files that the operator named; the reader of their content is given',
  readTlsFiles: 'certificate and key that the operator named, for OpenSSL to read',
  readTls: 'certificate and key that the operator named, for OpenSSL to read',
  readLines: 'the lines of a file; readTrace and readLogLine read them',
  parseWorkers: 'parseWorkerSpec for each',
  readDecisionLog: 'line by line, by readLogLine',
}

function isOwn(path: string): boolean {
  return Object.keys(OWN).some(own => path.startsWith(own))
}

/** A sentence for each reader that is neither in the list nor let through, and for reasons without a file. */
export function undeclaredReaders({ files }: Repository, decoders: readonly Decoder[]): readonly string[] {
  const fed = new Set(decoders.flatMap(({ functions }) => functions))
  const fedFiles = new Set(decoders.map(({ file }) => file))
  const faults: string[] = []
  for (const { path, code } of files) {
    if (!/^(?:packages|actors)\/[\w-]+\/src\//.test(path)) continue
    if (/\bJSON\.parse\(/.test(code) && !isOwn(path) && !Object.hasOwn(BARE, path))
      faults.push(`${path}: JSON.parse of others is parseJson of packages/base, which bounds its depth`)
    if (isOwn(path)) continue
    if (/from '@msgpack\/msgpack'/.test(code) && /\bdecode\b[^']*from '@msgpack/.test(code)) {
      if (path !== 'packages/protocol/src/message-pack.ts')
        faults.push(
          `${path}: MessagePack of others is decodeMessagePack of packages/protocol, which is bounded`,
        )
    }
    const names = [...code.matchAll(READER)].map(([, name]) => name!)
    for (const name of names)
      if (!fed.has(name) && !Object.hasOwn(INNER, name))
        faults.push(
          `${path}: ${name} is not in test/fuzz/decoders.ts, nor let through in test/fuzz/undeclared.ts`,
        )
    const isFed = fedFiles.has(path) || names.some(name => fed.has(name) || Object.hasOwn(INNER, name))
    if (CALL.test(code) && !isFed && !Object.hasOwn(BARE, path))
      faults.push(
        `${path}: it decodes, and is not in test/fuzz/decoders.ts, nor let through in test/fuzz/undeclared.ts`,
      )
  }
  const paths = files.map(({ path }) => path)
  for (const own of [...Object.keys(OWN), ...Object.keys(BARE), ...fedFiles])
    if (!paths.some(path => path.startsWith(own))) faults.push(`${own}: it is not there`)
  return faults
}
