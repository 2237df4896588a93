/**
 * What can stand between client and engines, and how each is found and started. A rival is looked for where
 * its variable says, else on PATH.
 */

import { spawnSync } from 'node:child_process'
import { accessSync, constants, statSync, writeFileSync } from 'node:fs'
import { delimiter, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { BLOCK_TOKENS, MODEL } from './prompts.ts'

/** A program and its words. */
export interface Command {
  readonly file: string
  readonly words: readonly string[]
  readonly env?: Readonly<Record<string, string>>
}

export interface Place {
  readonly port: number
  /** Another port that a server may need for itself. */
  readonly ownPort: number
  readonly engines: readonly string[]
  /** An empty folder, for what a program wants to write. */
  readonly folder: string
  /** Tokenizer and configuration of the model, as Hugging Face has them. */
  readonly modelFolder: string
}

export interface Rival {
  /** The program to look for, and the variable that names another. */
  readonly program: string
  readonly variable: string
  readonly install: string
  /** Words that make it print its version. */
  readonly versionWords: readonly string[]
  /** It is a module of the program, which may be there without it: then it has no version. */
  readonly isModule?: boolean
  command(file: string, place: Place): Command
  /** It forwards no HTTP: these engines are its own, and answer something else. */
  readonly engines?: (file: string, place: Place) => Command
}

const LOCAL = '127.0.0.1'
const VERSION_MS_MAX = 20_000

/** By name. */
export const RIVALS: Readonly<Record<string, Rival>> = {
  nginx: {
    program: 'nginx',
    variable: 'HOMING_BENCH_NGINX',
    install: 'apt-get install nginx-light',
    versionWords: ['-v'],
    command(file, { port, engines, folder }) {
      const path = join(folder, 'nginx.conf')
      writeFileSync(path, nginxConfiguration(folder, port, engines))
      return { file, words: ['-c', path, '-p', folder, '-g', 'daemon off;'] }
    },
  },
  smg: smgLike('smg', 'HOMING_BENCH_SMG', 'error'),
  'sglang-router': smgLike('sglang-router', 'HOMING_BENCH_SGLANG_ROUTER', 'error'),
  'vllm-router': {
    ...smgLike('vllm-router', 'HOMING_BENCH_VLLM_ROUTER', 'error'),
    command: (file, place) => ({ file, words: textRouterWords(place, 'error') }),
  },
  dynamo: {
    program: 'python3',
    variable: 'HOMING_BENCH_DYNAMO',
    install: 'pip install ai-dynamo (Python 3.10)',
    versionWords: ['-c', "import importlib.metadata as m; print(m.version('ai-dynamo'))"],
    isModule: true,
    command: (file, place) => ({
      file,
      words: [
        ...['-m', 'dynamo.frontend', '--router-mode', 'kv', '--discovery-backend', 'file'],
        ...['--http-host', LOCAL, '--http-port', String(place.port), '--tokenizer', 'fastokens'],
      ],
      env: dynamoEnvironment(place),
    }),
    engines: (file, place) => ({
      file,
      words: [
        ...['-m', 'dynamo.mocker', '--model-path', place.modelFolder, '--model-name', MODEL],
        ...[
          '--discovery-backend',
          'file',
          '--speedup-ratio',
          '1000000',
          '--block-size',
          String(BLOCK_TOKENS),
        ],
        ...['--num-workers', String(place.engines.length), '--num-gpu-blocks-override', '65536'],
        ...['--max-num-seqs', '1024', '--max-num-batched-tokens', '1000000'],
      ],
      env: dynamoEnvironment(place),
    }),
  },
}

/** Frontend and engines find each other by files. */
function dynamoEnvironment({ folder }: Place): Readonly<Record<string, string>> {
  return {
    DYN_FILE_KV: join(folder, 'dynamo'),
    DYN_TCP_RPC_HOST: LOCAL,
    DYN_LOG: 'error',
    HF_HUB_OFFLINE: '1',
  }
}

/** SGLang's routers: `launch`, policy by the text of prompts. */
function smgLike(program: string, variable: string, logLevel: string): Rival {
  return {
    program,
    variable,
    install: `pip install ${program}`,
    versionWords: ['--version'],
    command: (file, place) => ({ file, words: ['launch', ...textRouterWords(place, logLevel)] }),
  }
}

function textRouterWords({ port, ownPort, engines }: Place, logLevel: string): readonly string[] {
  return [
    ...['--host', LOCAL, '--port', String(port), '--policy', 'cache_aware'],
    ...['--prometheus-host', LOCAL, '--prometheus-port', String(ownPort), '--log-level', logLevel],
    ...['--worker-urls', ...engines],
  ]
}

/** The file of a rival; undefined: it is not installed. Throws where its variable names no program. */
export function findRival({ program, variable }: Pick<Rival, 'program' | 'variable'>): string | undefined {
  const named = process.env[variable]
  if (named !== undefined && named !== '') {
    if (isProgram(named)) return named
    throw new Error(`${variable}=${named.slice(0, 200)}: not a program`)
  }
  // Daemons are not on the PATH of every user.
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin']
  return folders.map(folder => join(folder, program)).find(isProgram)
}

/** How to have a rival that is absent. */
export function howToInstall({ install, program, variable }: Rival): string {
  return `${install}; found as ${program} on PATH, or where ${variable} says`
}

/** What a rival says of its version, in one line; undefined: it is not installed. */
export function versionOf(rival: Rival): string | undefined {
  const file = findRival(rival)
  if (file === undefined) return undefined
  const { status, stdout, stderr } = spawnSync(file, rival.versionWords, {
    encoding: 'utf8',
    timeout: VERSION_MS_MAX,
  })
  if (rival.isModule && status !== 0) return undefined
  return /\d+\.\d+[\w.+-]*/.exec(`${stdout}${stderr}`)?.[0] ?? 'of an unknown version'
}

/** The program of a checkout. */
export function routerFile(checkout: string): string {
  return resolve(checkout, 'packages/homing/src/main.ts')
}

/** The router of a checkout. */
export function routerCommand(checkout: string, tokenizer: string, { port, engines }: Place): Command {
  return {
    file: process.execPath,
    words: [
      routerFile(checkout),
      ...['router', '--host', LOCAL, '--port', String(port), '--log-level', 'warn', '--seed', '1'],
      ...['--tokenizer', tokenizer, ...engines.flatMap(url => ['--worker', url])],
    ],
  }
}

/** The relay of this bench, which reads bodies and gives them to JSON.parse. */
export function relayCommand({ port, engines }: Place): Command {
  const relay = fileURLToPath(new URL('relay.ts', import.meta.url))
  return { file: process.execPath, words: [relay, 'parse', `port=${port}`, ...engines] }
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

function nginxConfiguration(folder: string, port: number, engines: readonly string[]): string {
  const servers = engines.map(url => `server ${new URL(url).host};`).join(' ')
  return `worker_processes 1; pid ${folder}/nginx.pid; error_log ${folder}/error.log warn;
events { worker_connections 8192; }
http {
  access_log off; client_max_body_size 64m; client_body_buffer_size 1m;
  client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;
  upstream engines { ${servers} keepalive 512; keepalive_requests 1000000; }
  server {
    listen ${LOCAL}:${port}; keepalive_requests 1000000;
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; proxy_request_buffering on;
    location / { proxy_pass http://engines; }
  }
}
`
}
