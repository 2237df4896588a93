/** One request of a load: when it is due, where it goes, and its body with a salt in front of the prompt. */

export type Endpoint = 'chat' | 'completions'

export interface LoadRequest {
  /** Milliseconds from any origin; undefined: its source has no times. */
  readonly atMs: number | undefined
  readonly endpoint: Endpoint
  /** The members of its body, without model and stream; made when it is sent. '' is no salt. */
  body(salt: string): Readonly<Record<string, unknown>>
}

/** Requests of a load, the same each time that they are asked for. */
export interface RequestSource {
  /** One sentence for people, without its full stop. */
  readonly description: string
  readonly hasTimes: boolean
  /** Undefined: as many as are asked for. */
  readonly count: number | undefined
  /** The requests of a block, out of `blocks` of equal size. */
  block(block: number, blocks: number): AsyncIterable<LoadRequest>
}

export interface Message {
  readonly role: string
  readonly content: unknown
}

/** The same body with `salt` in front of its prompt, so that it shares no prefix with one of another salt. */
export function salted(
  body: Readonly<Record<string, unknown>>,
  salt: string,
): Readonly<Record<string, unknown>> {
  if (salt === '') return body
  const { messages, prompt } = body
  if (Array.isArray(messages)) {
    const [first, ...others] = messages as readonly Message[]
    return { ...body, messages: [{ ...first, content: saltedContent(first?.content, salt) }, ...others] }
  }
  if (typeof prompt === 'string') return { ...body, prompt: `${salt}\n\n${prompt}` }
  if (Array.isArray(prompt)) return { ...body, prompt: [...idsOf(salt), ...(prompt as readonly number[])] }
  return body
}

/** A text, or a list of parts, some of them texts. */
function saltedContent(content: unknown, salt: string): unknown {
  if (typeof content === 'string') return `${salt}\n\n${content}`
  if (Array.isArray(content)) return [{ type: 'text', text: salt }, ...(content as readonly unknown[])]
  return salt
}

/** Ids of the first thousand, which every vocabulary has; none of the first hundred, which may be special. */
function idsOf(salt: string): number[] {
  return Array.from(salt, character => 100 + (character.codePointAt(0)! % 900))
}
