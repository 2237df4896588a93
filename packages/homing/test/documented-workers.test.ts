/** All printed worker URLs and ports can be typed as shown: in the README, in docs, in every help text. */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { doctorCommand, indexerCommand, renderHelp, routerCommand, sidecarCommand } from '@homing/config'
import { type EngineFamily, missingOf, parseWorkerSpec } from '@homing/fleet'
import t from 'tap'
import { engineCommand } from '../src/engine-command.ts'
import { parseRanks } from '../src/indexer-workers.ts'
import { faultsOfWorkers } from '../src/worker-specs.ts'

const ROOT = join(import.meta.dirname, '..', '..', '..')

/** By where it is printed. Lines that a help text or a shell folds are joined. */
const PRINTED: readonly (readonly [where: string, text: string])[] = [
  ...['README.md', 'CHANGELOG.md', ...pages('docs')].map(
    path => [path, readFileSync(join(ROOT, path), 'utf8')] as const,
  ),
  ...[routerCommand, indexerCommand, sidecarCommand, engineCommand, doctorCommand].map(
    command => [`homing ${command.name} --help`, renderHelp(command)] as const,
  ),
  ['the advice about vLLM', adviceAbout('vllm')],
  ['the advice about SGLang', adviceAbout('sglang')],
].map(([where, text]) => [where!, text!.replace(/\\?\n\s*/g, ' ')] as const)

t.test('every worker URL that is printed is one', async t => {
  let count = 0
  for (const [where, text] of PRINTED) {
    for (const url of workerUrlsOf(text)) {
      count++
      t.doesNotThrow(() => parseWorkerSpec(url, 0), `${where}: ${url}`)
    }
  }
  t.ok(count >= 10, `${count} URLs`)
})

t.test('workers that are printed in one command can be given together', async t => {
  let count = 0
  for (const [where, text] of PRINTED) {
    for (const [command] of text.matchAll(/\b(?:homing|start) router(?: [^`#;|]*?)?--worker [^`#;|]*/g)) {
      count++
      t.strictSame(faultsOfWorkers(workerUrlsOf(command)), [], `${where}: ${command}`)
    }
  }
  t.ok(count >= 5, `${count} commands`)
})

t.test('every rank of an indexer that is printed is one', async t => {
  let count = 0
  for (const [where, text] of PRINTED) {
    for (const [ranks] of text.matchAll(/(?<![\w:])\d+(?::\d+)?=tcp:\/\/[^\s'"`]*\d/g)) {
      count++
      const given = { model: 'm', group: 'default', blockSizeTokens: 16 }
      t.doesNotThrow(() => parseRanks([ranks], given), `${where}: ${ranks}`)
    }
  }
  t.ok(count >= 3, `${count} ranks`)
})

t.test('the ports of every engine that is printed leave room for its ranks', async t => {
  let count = 0
  for (const [where, text] of PRINTED) {
    for (const [, json] of text.matchAll(/--kv-events-config '([^']*)'/g)) {
      count++
      const { endpoint, replay_endpoint: replay } = JSON.parse(json!) as Record<string, string>
      const port = (of: string | undefined): string => of!.slice(of!.lastIndexOf(':') + 1)
      const url = `http://h:8000?events=${port(endpoint)}&replay=${port(replay)}&ranks=8`
      t.doesNotThrow(() => parseWorkerSpec(url, 0), `${where}: ${json}`)
    }
  }
  t.ok(count >= 6, `${count} configurations`)
})

/**
 * What stands behind --worker, and every URL with a parameter of a worker; words in capitals stand for
 * something.
 */
function workerUrlsOf(text: string): readonly string[] {
  const urls = [
    ...text.matchAll(/--worker '?((?:https?:\/\/)[^\s'"`]+)/g),
    ...text.matchAll(
      /(?<!--worker '?)(http:\/\/[\w.:[\]-]+\/?\?(?:events|replay|ranks|id|block_size)=[^\s'"`;,)]*)/g,
    ),
  ].map(([, url]) => url!)
  return urls.map(url =>
    url
      .replace(/:PORT\b/, ':8000')
      .replace('events=PORT', 'events=5557')
      .replace('replay=PORT', 'replay=6557')
      .replace('block_size=TOKENS', 'block_size=16'),
  )
}

/** The lines about an engine that publishes nothing, and about one that replays nothing. */
function adviceAbout(engine: EngineFamily): string {
  const worker = { origin: 'http://h:8000', engine, ranks: { value: 1, source: 'default' as const } }
  const key = { dpRank: 0, replayEndpoint: undefined }
  const withoutEvents = {
    ...worker,
    blockSizeTokens: undefined,
    keys: [{ ...key, eventsEndpoint: undefined }],
  }
  const withoutReplay = { ...withoutEvents, keys: [{ ...key, eventsEndpoint: 'tcp://h:5557' }] }
  return [...missingOf(withoutEvents), ...missingOf(withoutReplay)].join('\n')
}

function pages(folder: string): readonly string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.md'))
    .map(name => `${folder}/${name}`)
}
