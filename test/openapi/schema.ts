/** JSON schemas of answers: what a set of samples has in common, field by field. */

export interface Schema {
  type?: string | string[]
  description?: string
  properties?: Record<string, Schema>
  required?: string[]
  additionalProperties?: boolean | Schema
  items?: Schema
  enum?: readonly (string | null)[]
  minimum?: number
  maximum?: number
}

/** Knowledge about fields beyond the samples. */
export interface FieldNotes {
  /** What a field means, by its path: 'a.b', 'a[].b'. */
  readonly meaningOf: (path: string) => string | undefined
  /** Its keys are data, not names of fields. */
  readonly isMap: (path: string) => boolean
  /** It may be null, though no sample is. */
  readonly mayBeNull: (path: string) => boolean
}

/** Labels of blocks may have members that no router knows; of those of a pool alone there are only these. */
const LABEL = /(?:moe|cxl)_metadata(?:\[\])?$/
const UNKNOWN_MEMBERS = /cxl_state_transition\.cxl_metadata$/

export function schemaOf(samples: readonly unknown[], notes: FieldNotes, path = ''): Schema {
  const types = new Set(samples.map(typeOf))
  if (samples.length > 0 && notes.mayBeNull(path)) types.add('null')
  // A field that is null in every sample may have any other type at other times.
  if (types.size === 1 && types.has('null')) types.clear()
  const description = notes.meaningOf(path)
  const schema: Schema = {
    ...(types.size > 0 && { type: types.size === 1 ? [...types][0]! : [...types].sort() }),
    ...(description !== undefined && description !== '' && { description }),
  }
  const objects = samples.filter(isObject)
  if (objects.length > 0) Object.assign(schema, objectPart(objects, notes, path))
  const lists = samples.filter(Array.isArray) as unknown[][]
  if (lists.length > 0) schema.items = schemaOf(lists.flat(), notes, `${path}[]`)
  return schema
}

function objectPart(objects: readonly Record<string, unknown>[], notes: FieldNotes, path: string): Schema {
  if (notes.isMap(path)) {
    return { additionalProperties: schemaOf(objects.flatMap(Object.values), notes, `${path}.*`) }
  }
  if (UNKNOWN_MEMBERS.test(path)) return { additionalProperties: true }
  const names = [...new Set(objects.flatMap(object => Object.keys(object)))]
  const at = (name: string) => (path === '' ? name : `${path}.${name}`)
  return {
    properties: Object.fromEntries(
      names.map(name => [
        name,
        schemaOf(
          objects.filter(object => name in object).map(object => object[name]),
          notes,
          at(name),
        ),
      ]),
    ),
    required: names.filter(name => objects.every(object => name in object)).sort(),
    additionalProperties: LABEL.test(path),
  }
}

function typeOf(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  // Figures of measurements may be whole by chance.
  return typeof value === 'number' ? 'number' : typeof value
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
