/** A folder of a model as Hugging Face has it, without weights: for routers that load a model by folder. */

import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const FILES = ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja']
/** The least that is a model. */
const CONFIGURATION = {
  ...{ architectures: ['Qwen2ForCausalLM'], model_type: 'qwen2', hidden_size: 64, intermediate_size: 128 },
  ...{ num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, hidden_act: 'silu' },
  ...{ max_position_embeddings: 262_144, rms_norm_eps: 1e-6, rope_theta: 10_000, torch_dtype: 'bfloat16' },
}

interface TokenizerFile {
  readonly model: { readonly vocab: Readonly<Record<string, number>> }
  readonly added_tokens: readonly { readonly id: number }[]
}

/** Makes `folder` of the tokenizer of another one. */
export function writeModel(folder: string, tokenizer: string): void {
  mkdirSync(folder)
  for (const file of FILES.filter(name => existsSync(join(tokenizer, name))))
    copyFileSync(join(tokenizer, file), join(folder, file))
  const { model, added_tokens } = JSON.parse(
    readFileSync(join(tokenizer, 'tokenizer.json'), 'utf8'),
  ) as TokenizerFile
  const ids = added_tokens.map(({ id }) => id)
  const eos = { eos_token_id: Math.max(...ids) }
  const vocab_size = Math.max(...ids, ...Object.values(model.vocab)) + 1
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...CONFIGURATION, ...eos, vocab_size }))
  writeFileSync(join(folder, 'generation_config.json'), JSON.stringify(eos))
}
