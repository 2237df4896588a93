/** What a person is told of each worker after the ready line: what it is, and what is missing at it. */

import { missingOf, type WorkerKeyRecord, type WorkerRecord } from '@homing/directory'

/**
 * One line per worker, and below it, indented, what keeps its cache from being known and what to do:
 *
 *   worker 127.0.0.1:8100: vllm 0.32.0, model tiny, blocks of 32 tokens, 1 rank, events tcp://127.0.0.1:5557, trust exact
 */
export function workerLines(worker: WorkerRecord): readonly string[] {
  if (worker.state !== 'up') {
    return [`worker ${worker.id}: ${worker.state}: ${worker.stateReason}; it is probed until it answers`]
  }
  const { engine, engineVersion, models, blockSizeTokens, ranks, keys } = worker
  const facts = [
    engine === 'unknown' ? 'unknown engine' : `${engine} ${engineVersion}`.trim(),
    models.length === 0
      ? 'no model'
      : `${plural(models.length, 'model')} ${models.map(({ name }) => name).join(', ')}`,
    blockSizeTokens === undefined ? 'block size unknown' : `blocks of ${blockSizeTokens.value} tokens`,
    `${ranks.value} ${plural(ranks.value, 'rank')}`,
    keys[0]?.eventsEndpoint === undefined ? 'no events' : `events ${keys[0].eventsEndpoint}`,
    `trust ${trustText(keys)}`,
  ]
  return [`worker ${worker.id}: ${facts.join(', ')}`, ...missingAt(worker).map(line => `  ${line}`)]
}

/** 'exact', or where ranks differ 'exact 3, none 1'. */
function trustText(keys: readonly WorkerKeyRecord[]): string {
  const counts = new Map<string, number>()
  for (const { trust } of keys) counts.set(trust, (counts.get(trust) ?? 0) + 1)
  if (counts.size === 1) return [...counts.keys()][0]!
  return counts.size === 0 ? 'none' : [...counts].map(([trust, count]) => `${trust} ${count}`).join(', ')
}

/** Why keys are not trusted, then what the worker lacks; the reason of a key without events is one of the latter. */
function missingAt(worker: WorkerRecord): readonly string[] {
  const reasons = worker.keys
    .filter(({ trust, eventsEndpoint }) => trust !== 'exact' && eventsEndpoint !== undefined)
    .map(({ trust, trustReason }) => `trust ${trust}: ${trustReason}`)
  return [...new Set([...reasons, ...missingOf(worker)])]
}

function plural(count: number, word: string): string {
  return count === 1 ? word : `${word}s`
}
