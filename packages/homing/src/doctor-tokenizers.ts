/** The tokenizers that a doctor has at hand: the directory that was given, or the one that the engine names, if it is here. */

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { DiagnosisTokenizer, ReachedOutcome } from '@homing/directory'
import { PromptTokenizer } from '@homing/tokenization'

/** Undefined: none is at hand. Rejects with TokenizerLoadError if `given` is no tokenizer. */
export async function tokenizerFor(
  outcome: ReachedOutcome,
  given: string | undefined,
): Promise<DiagnosisTokenizer | undefined> {
  if (given !== undefined) return load(given)
  const root = outcome.models[0]?.root
  if (root === undefined || !existsSync(join(root, 'tokenizer.json'))) return undefined
  // One that is not read here is not read by a router either, which then asks the engine.
  return load(root).catch(() => undefined)
}

async function load(directory: string): Promise<DiagnosisTokenizer> {
  const prompts = await PromptTokenizer.load(directory)
  return { name: directory, encode: text => prompts.encodeText(text, { addSpecialTokens: true }) }
}
