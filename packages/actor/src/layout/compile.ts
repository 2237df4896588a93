/**
 * CompiledLayout: the codecs of a layout, made once per thread for each description. Threads that hold
 * equal descriptions make equal codecs, so the number of a variant means the same on both sides of a ring.
 */

import { canGenerate } from './can-generate.ts'
import { closureCodec } from './closures.ts'
import type { BodyCodec } from './codec.ts'
import { descriptionOf, type LayoutDescription, type Shape, shapesOf } from './description.ts'
import { generateCodec } from './generate.ts'
import type { MessageLayout } from './layout.ts'

/** How one variant travels. */
export interface VariantCodec {
  readonly type: string
  /** Its index among the variants of the layout. */
  readonly number: number
  /** The message without `reply`; `type` is put into what is read. */
  readonly body: BodyCodec
  /** The answer to an ask; undefined: it travels as an object. */
  readonly reply: BodyCodec | undefined
}

/** Beyond these the oldest is forgotten, and compiled again when it is asked for. */
const CACHED_MAX = 1024

const compiledById = new Map<string, CompiledLayout>()
const compiledByLayout = new WeakMap<MessageLayout, CompiledLayout>()

export class CompiledLayout {
  /** Equal for equal descriptions, on every thread. */
  readonly id: string
  /** Plain and frozen; may be cloned. */
  readonly description: LayoutDescription
  readonly variants: readonly VariantCodec[]
  readonly #byType: ReadonlyMap<string, VariantCodec>
  #lastType = ''
  #lastVariant: VariantCodec | undefined = undefined

  /** Use `compileLayout`. `codecOf` makes each codec. */
  constructor(description: LayoutDescription, codecOf: (shape: Shape) => BodyCodec) {
    const shapes = shapesOf(description)
    this.description = descriptionOf(shapes)
    this.id = JSON.stringify(this.description)
    this.variants = shapes.map(({ type, body, reply }, number) => ({
      type,
      number,
      body: codecOf(body),
      reply: reply === undefined ? undefined : codecOf(reply),
    }))
    this.#byType = new Map(this.variants.map(variant => [variant.type, variant]))
  }

  /** Undefined for a type that is not described. */
  variantOf(type: string): VariantCodec | undefined {
    if (type !== this.#lastType) {
      this.#lastType = type
      this.#lastVariant = this.#byType.get(type)
    }
    return this.#lastVariant
  }
}

/** The codecs of the layout in a definition; undefined: it has none. */
export function compiledOf(layout: MessageLayout | undefined): CompiledLayout | undefined {
  if (layout === undefined) return undefined
  let compiled = compiledByLayout.get(layout)
  if (compiled === undefined) {
    compiled = compileLayout(layout.description)
    compiledByLayout.set(layout, compiled)
  }
  return compiled
}

/** The codecs of `description`, the same object for equal ones. Throws LayoutError when it is no description. */
export function compileLayout(description: LayoutDescription): CompiledLayout {
  const id = JSON.stringify(descriptionOf(shapesOf(description)))
  const known = compiledById.get(id)
  if (known !== undefined) return known
  const compiled = new CompiledLayout(description, canGenerate() ? generateCodec : closureCodec)
  compiledById.set(id, compiled)
  if (compiledById.size > CACHED_MAX) compiledById.delete(compiledById.keys().next().value!)
  return compiled
}
