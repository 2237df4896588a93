/** The settings of `homing doctor`. */

import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import { shared } from './shared-settings.ts'
import { MINUTE_MS, SECOND_MS } from './units.ts'

const doctorSettings = [
  {
    key: 'workers',
    name: 'worker',
    group: 'Workers',
    kind: 'list',
    placeholder: 'URL',
    separator: 'comma or space',
    aliases: ['workers'],
    env: 'HOMING_WORKERS',
    help: 'Base URL of an engine, as for homing router, with the same parameters (http://h:8001?events=5557&replay=6557). The words behind the options are URLs too. Of several it also looks whether two name the same port.',
  },
  {
    ...shared.engineKeyFile,
    help: 'File with the API key of the engines, as for homing router; URLs name others with key_file=PATH or key_env=NAME.',
  },
  {
    ...shared.engineCaFile,
    help: 'PEM file with certificates that are believed for https workers, as for homing router.',
  },
  {
    key: 'timeoutMs',
    name: 'timeout',
    group: 'Questions',
    kind: 'duration',
    default: 3 * SECOND_MS,
    min: 50,
    max: 10 * MINUTE_MS,
    env: 'HOMING_DOCTOR_TIMEOUT',
    help: 'Longest wait for each answer: of HTTP, of an event socket until it is connected, of a replay, of the completion of --send. What answers only after that counts as not answering.',
  },
  {
    key: 'listenMs',
    name: 'listen',
    group: 'Questions',
    kind: 'duration',
    default: SECOND_MS,
    min: 0,
    max: 10 * MINUTE_MS,
    zeroMeans: 'not at all',
    env: 'HOMING_DOCTOR_LISTEN',
    help: 'How long event sockets are listened to when they are connected. It ends early when every rank has published something. Engines publish nothing while they are idle.',
  },
  {
    key: 'sends',
    name: 'send',
    group: 'Questions',
    kind: 'flag',
    default: false,
    env: 'HOMING_DOCTOR_SEND',
    help: 'Send one short completion (two blocks of random numbers, one token of answer), and see whether the engine publishes its blocks, how late, and whether the tokens in them are those of --tokenizer. Without it the engine computes nothing.',
  },
  {
    key: 'asksHistory',
    name: 'history',
    group: 'Questions',
    kind: 'flag',
    default: true,
    env: 'HOMING_DOCTOR_HISTORY',
    help: 'Have each engine repeat all batches that it keeps, as a router does when it starts: it publishes nothing new meanwhile, for some milliseconds. --no-history asks only whether it would answer, which costs a busy engine nothing.',
  },
  {
    key: 'tokenizer',
    name: 'tokenizer',
    group: 'Questions',
    kind: 'text',
    placeholder: 'DIR',
    default: undefined,
    unsetMeans: 'the directory that the engine names, if it is on this machine',
    env: 'HOMING_DOCTOR_TOKENIZER',
    help: 'Directory with tokenizer.json and tokenizer_config.json, to compare with the tokens of the events. Give the one that the router gets.',
  },
  {
    ...shared.blockSizeTokens,
    group: 'Questions',
    unsetMeans: 'what each worker reports',
    aliases: ['block-size', 'router-block-size'],
    help: 'The block size that the router is given for all workers, to see whether it is theirs.',
  },
  {
    key: 'json',
    name: 'json',
    group: 'Output',
    kind: 'flag',
    default: false,
    env: 'HOMING_DOCTOR_JSON',
    help: 'One JSON object for programs, instead of lines for people: the fields are those of GET /workers/ID/diagnosis, one entry of `workers` per URL.',
  },
] as const satisfies readonly SettingDescriptor[]

/** Frozen; durations in milliseconds. */
export type DoctorSettings = SettingsOf<typeof doctorSettings>

/** `homing doctor`. */
export const doctorCommand: Command<typeof doctorSettings> = {
  name: 'doctor',
  summary:
    'Looks at engines as a router would: what it finds, the trust that it can have, what to change. Exit code 0: all is well; 1: a cache cannot be known exactly; 2: bad usage; 3: an engine cannot be used.',
  settings: doctorSettings,
  operands: 'worker',
  examples: [
    { does: 'One engine, asked only:', line: 'homing doctor http://10.0.0.3:8001' },
    {
      does: 'Two engines whose versions do not tell their ports, with a request to each:',
      line: "homing doctor --send 'http://10.0.0.3:8001?events=5557&replay=6557' 'http://10.0.0.4:8001?events=5557&replay=6557'",
    },
  ],
  rules: [faultOfNoWorker],
}

function faultOfNoWorker({ settings }: RuleFacts<DoctorSettings>): string | undefined {
  return settings.workers.length > 0 ? undefined : 'name an engine: homing doctor http://HOST:PORT'
}
