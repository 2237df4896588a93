/**
 * The lines after the ready line: each worker and what it lacks; which encoder each tokenizer uses.
 */

import { missingOf, type WorkerKeyRecord, type WorkerRecord } from '@homing/fleet'
import type { EncoderPath } from '@homing/tokenization'

/**
 * One line per worker, and below it, indented, why its cache is not fully known and what to do:
 *
 *   worker 127.0.0.1:8100: vllm 0.32.0, model tiny, blocks of 32 tokens, 1 rank,
 *       events tcp://127.0.0.1:5557, trust exact
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

/** Why keys are not trusted, then what the worker lacks; a key without events is one of the latter. */
function missingAt(worker: WorkerRecord): readonly string[] {
  const reasons = worker.keys
    .filter(({ trust, eventsEndpoint }) => trust !== 'exact' && eventsEndpoint !== undefined)
    .map(({ trust, trustReason }) => `trust ${trust}: ${trustReason}`)
  return [...new Set([...reasons, ...missingOf(worker)])]
}

function plural(count: number, word: string): string {
  return count === 1 ? word : `${word}s`
}

/** One line per tokenizer directory: who encodes its prompts, and why it is not the router's own encoder. */
export function tokenizerLines(tokenizers: ReadonlyMap<string, EncoderPath>): readonly string[] {
  const words = { own: 'own encoder', library: 'JavaScript library (slower)', engine: 'engines are asked' }
  return [...tokenizers].map(([directory, { path, reason }]) =>
    reason === undefined
      ? `tokenizer ${directory}: ${words[path]}`
      : `tokenizer ${directory}: ${words[path]}: ${reason}`,
  )
}
