/**
 * The tokenizers that the doctor uses: the given directory, or the one that the engine names, if this machine
 * has it.
 */

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { CodedError } from '@homing/base'
import { SettingsError } from '@homing/config'
import type { DiagnosisTokenizer } from '@homing/doctor'
import type { ReachedOutcome } from '@homing/fleet'
import { PromptTokenizer } from '@homing/tokenization'

/** Rejects with SettingsError if it is no tokenizer that can be read. */
export async function givenTokenizer(directory: string): Promise<DiagnosisTokenizer> {
  try {
    return await load(directory)
  } catch (thrown) {
    if (!(thrown instanceof CodedError)) throw thrown
    throw new SettingsError('doctor', [`--tokenizer: ${thrown.message}`])
  }
}

/** Undefined: the engine names none that is on this machine. */
export async function tokenizerOf({ models }: ReachedOutcome): Promise<DiagnosisTokenizer | undefined> {
  const root = models[0]?.root
  if (root === undefined || !existsSync(join(root, 'tokenizer.json'))) return undefined
  try {
    return await load(root)
  } catch (thrown) {
    // One that is not read here is not read by a router either, which then asks the engine.
    if (thrown instanceof CodedError) return undefined
    throw thrown
  }
}

async function load(directory: string): Promise<DiagnosisTokenizer> {
  const prompts = await PromptTokenizer.load(directory)
  return {
    name: directory,
    encode: text => prompts.encodeText(text, { addSpecialTokens: true }),
    encodeChat(body) {
      const answer = prompts.encodeChat(body)
      return answer.kind === 'tokens' ? answer.tokens : undefined
    },
  }
}
