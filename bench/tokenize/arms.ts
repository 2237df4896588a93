/** Those who tokenize in the bench: each with a way to begin with empty tables, where it has one. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Tokenizer } from '@huggingface/tokenizers'
import { nativeEncoder } from '../../packages/tokenization/test/reference/native.ts'

/** Token ids; special tokens in the text are found, none are added. */
export type Encode = (text: string) => readonly number[] | Int32Array | Promise<readonly number[]>

export interface Arm {
  readonly name: string
  readonly encode: Encode
}

/** The JavaScript library, on one tokenizer.json. */
export function libraryArm(directory: string): Arm {
  const tokenizer = new Tokenizer(
    JSON.parse(readFileSync(join(directory, 'tokenizer.json'), 'utf8')),
    JSON.parse(readFileSync(join(directory, 'tokenizer_config.json'), 'utf8')),
  )
  return { name: 'library', encode: text => tokenizer.encode(text, { add_special_tokens: false }).ids }
}

/** The native binding; undefined where there is none. */
export async function nativeArm(directory: string): Promise<Arm | undefined> {
  const encode = await nativeEncoder(join(directory, 'tokenizer.json'))
  return encode === undefined ? undefined : { name: 'native', encode }
}
