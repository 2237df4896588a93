/**
 * Model table: tokenizer, block size, and hash name of adapters, for each model. Rebuilt at every change of
 * the fleet.
 */

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { blockSizeOfBoth, type Fleet, type Sourced, type WorkerRecord } from '@homing/fleet'
import { type ChatOptions, chatOptionsOf, type GivenChatOptions } from './chat-options.ts'

export interface ModelEntry {
  readonly name: string
  /** The name under which an adapter's blocks are hashed; undefined for a base model. */
  readonly loraName: string | undefined
  readonly base: string
  /** Directory of the tokenizer; undefined: ask an engine. */
  readonly tokenizerDirectory: string | undefined
  readonly dialect: 'vllm' | 'sglang'
  /** Undefined until a worker has said it: then the prompt cannot be cut into blocks. */
  readonly blockSizeTokens: number | undefined
  /** How its chats are written; undefined: as its directory has it. */
  readonly chat?: ChatOptions | undefined
  /** Workers that can be asked to tokenize, up ones only. */
  readonly tokenizeOrigins: readonly string[]
  /** It is meant where a request names no model: at most one entry is. */
  readonly isDefault: boolean
  /** By route: prompts whose tokens engines are asked for, because they make others of them. */
  readonly engineTokenized?: ReadonlyMap<string, EngineQuestions>
}

export interface EngineQuestions {
  readonly why: string
  /** Whom to ask; empty: no worker can be asked. */
  readonly origins: readonly string[]
}

/** By model name, in the order of the fleet. A map, since a client may name a model `constructor`. */
export type ModelTable = ReadonlyMap<string, ModelEntry>

/** Directories given by the operator: by model name, and '' for all that have none of their own. */
export type GivenTokenizers = ReadonlyMap<string, string>

/** Reads `[MODEL=]DIR` texts; the last one given for a model wins. */
export function readGivenTokenizers(texts: readonly string[]): GivenTokenizers {
  const given = new Map<string, string>()
  for (const text of texts) {
    const equals = text.indexOf('=')
    if (equals === -1) given.set('', text)
    else given.set(text.slice(0, equals), text.slice(equals + 1))
  }
  return given
}

/**
 * Block size and engine family of a model come from its first worker that has reported them, up or not; a
 * size that was only probed gives way to one that events have shown or that was given. The directory compares
 * the other workers with the same one; for a worker that differs, only guesses from sent requests count.
 */
export function modelTable(fleet: Fleet, given: GivenTokenizers, chats?: GivenChatOptions): ModelTable {
  const table = new Map<string, ModelEntry>()
  const nameless = defaultModel(fleet)
  const dialects = new Map<string, ModelEntry['dialect']>()
  const sizes = new Map<string, Sourced<number> | undefined>()
  for (const worker of fleet.workers) {
    for (const card of worker.models) {
      const base = card.base ?? card.name
      const known = table.get(card.name)
      sizes.set(card.name, blockSizeOfBoth(sizes.get(card.name), worker.blockSizeTokens))
      const origins = worker.state === 'up' && worker.canTokenize ? [worker.origin] : []
      if (worker.engine !== 'unknown' && !dialects.has(card.name)) {
        dialects.set(card.name, worker.engine === 'sglang' ? 'sglang' : 'vllm')
      }
      table.set(card.name, {
        name: card.name,
        loraName: card.base === undefined ? undefined : card.name,
        base,
        tokenizerDirectory: known?.tokenizerDirectory ?? directoryOf(worker, card.name, base, given),
        dialect: dialects.get(card.name) ?? 'vllm',
        chat: chats && chatOptionsOf(chats, card.name, base),
        blockSizeTokens: sizes.get(card.name)?.value,
        tokenizeOrigins: [...(known?.tokenizeOrigins ?? []), ...origins],
        isDefault: card.name === nameless,
        engineTokenized: known?.engineTokenized ?? questionsOf(fleet, base),
      })
    }
  }
  return table
}

function questionsOf(
  { engineTokenized = [], workers }: Fleet,
  model: string,
): ReadonlyMap<string, EngineQuestions> {
  const questions = new Map<string, EngineQuestions>()
  for (const { model: name, route, reason, workerIds } of engineTokenized) {
    if (name !== model) continue
    const asked = workers.filter(({ id, state }) => state === 'up' && workerIds.includes(id))
    questions.set(route, {
      why: `engines make other tokens of it (${reason})`,
      origins: asked.map(({ origin }) => origin),
    })
  }
  return questions
}

/**
 * The base model, where there is but one; undefined: there is none, or there are several. Engines serve one
 * model under several names, which then have the same root: of those, the name that most workers have.
 */
function defaultModel({ workers }: Fleet): string | undefined {
  const counts = new Map<string, number>()
  const roots = new Set<string | undefined>()
  for (const { models } of workers) {
    for (const { name, base, root } of models) {
      if (base !== undefined) continue
      counts.set(name, (counts.get(name) ?? 0) + 1)
      roots.add(root)
    }
  }
  const names = [...counts.keys()]
  if (names.length > 1 && (roots.size > 1 || roots.has(undefined))) return undefined
  const most = Math.max(...counts.values())
  return names.find(name => counts.get(name) === most)
}

/**
 * Given for the model, for its base, for all; else where the engine loaded it from, if that is on this
 * machine.
 */
function directoryOf(
  worker: WorkerRecord,
  name: string,
  base: string,
  given: GivenTokenizers,
): string | undefined {
  const chosen = given.get(name) ?? given.get(base) ?? given.get('')
  if (chosen !== undefined) return chosen
  const root = worker.models.find(card => card.name === base)?.root
  return root !== undefined && existsSync(join(root, 'tokenizer.json')) ? root : undefined
}
