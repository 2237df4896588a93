/**
 * One value of `--model-alias`: the models that serve a name.
 *
 *   'claude-haiku-4-5=qwen-small'   'claude-*=qwen-large|qwen-small'   'qwen-large=qwen-large|qwen-small'
 *
 * A name that ends in `*` stands for all names that begin so. Of several models, the first one that can be
 * served serves.
 */

export interface ModelAlias {
  /** A name; or, if `isBeginning`, what names begin with. */
  readonly name: string
  readonly isBeginning: boolean
  /** In the order in which they are tried; at least one. */
  readonly models: readonly string[]
}

const FORM = "use NAME=MODEL, or NAME=MODEL|MODEL for models that are tried in order; NAME may end in '*'"

/** Why it cannot be used; undefined when it can. */
export function modelAliasFault(text: string): string | undefined {
  const equals = text.indexOf('=')
  if (equals < 1) return `names no alias before an '='; ${FORM}`
  const { name, models } = readModelAlias(text)
  if (name.includes('*')) return `has a '*' that is not at the end of the name; ${FORM}`
  if (models.includes('')) return `has an empty model; ${FORM}`
  if (models.some(model => model.includes('*'))) return `has a '*' in a model; ${FORM}`
  return undefined
}

/** `text` has been checked. */
export function readModelAlias(text: string): ModelAlias {
  const equals = text.indexOf('=')
  const name = text.slice(0, equals).trim()
  const models = text
    .slice(equals + 1)
    .split('|')
    .map(model => model.trim())
  return name.endsWith('*')
    ? { name: name.slice(0, -1), isBeginning: true, models }
    : { name, isBeginning: false, models }
}
