/**
 * What vLLM 0.32, transformers 5 and Jinja2 3.1 answered, recorded by fixtures/record_parity.py. The
 * rule: an answer is equal, or it is "delegate"; and what is delegated needlessly is listed here.
 */

import { readFileSync } from 'node:fs'
import t from 'tap'
import {
  ChatTemplate,
  PromptTokenizer,
  type PythonDict,
  RenderingRefusedError,
  tryParseJson,
} from '../src/index.ts'

interface Recorded {
  readonly versions: Readonly<Record<string, string>>
  readonly context: string
  readonly chats: readonly {
    readonly title: string
    readonly body: string
    readonly results: Readonly<
      Record<string, { readonly text: string; readonly ids?: readonly number[] } | null>
    >
  }[]
  readonly snippets: readonly (readonly [source: string, rendered: string | null])[]
  readonly encodings: readonly (readonly [text: string, ids: readonly number[]])[]
  readonly decodings: readonly string[]
}

const recorded: Recorded = JSON.parse(readFileSync(new URL('fixtures/parity.json', import.meta.url), 'utf8'))
const TINY = new URL('../fixtures/tiny', import.meta.url).pathname

/** Rendered by vLLM, and delegated all the same. */
const DELEGATED_CHATS: readonly string[] = [
  "a template in the request's kwargs (tiny): chat_template_kwargs sets chat_template",
]
const DELEGATED_SNIPPETS: readonly string[] = [
  '{{ d.items }}: the template prints a function',
  '{{ d.keys() }}: the template prints a view',
  "{{ l|select('odd') }}: the template prints a generator",
  "{% set g = l|select('odd') %}{% for x in g %}{{ x }}{% endfor %}|{% for x in g %}{{ x }}{% endfor %}: the template uses a generator twice",
  '{{ range(3) }}: the template prints a range',
  "{{ 'ß'|capitalize }}: the template capitalizes ß",
  "{{ s.encode('utf-8') }}: the template uses str.encode",
  '{% for i in l recursive %}{{ i }}{% endfor %}: the template has a recursive loop',
  '{{ 12345678901234567890 }}: the integer 12345678901234567000 is beyond 2^53',
  '{{ d|xmlattr }}: the template uses the filter xmlattr',
]

function template(name: string): string | undefined {
  return name === 'tiny'
    ? undefined
    : readFileSync(new URL(`fixtures/templates/${name}.jinja`, import.meta.url), 'utf8')
}

t.test('chats render and encode as vLLM does it', async t => {
  const tokenizers = new Map<string, PromptTokenizer>()
  const delegated: string[] = []
  for (const { title, body, results } of recorded.chats) {
    for (const [name, expected] of Object.entries(results)) {
      const tokenizer =
        tokenizers.get(name) ?? (await PromptTokenizer.load(TINY, { chatTemplate: template(name) }))
      tokenizers.set(name, tokenizer)
      const rendered = tokenizer.renderChat(body)
      if (rendered.kind !== 'text') {
        if (expected !== null) delegated.push(`${title} (${name}): ${rendered.reason}`)
        continue
      }
      t.equal(rendered.text, expected?.text, `${title} (${name})`)
      const encoded = tokenizer.encodeChat(body)
      if (expected?.ids !== undefined)
        t.strictSame(encoded.kind === 'tokens' && [...encoded.tokens], expected.ids, title)
    }
  }
  t.strictSame(delegated, DELEGATED_CHATS)
})

t.test('snippets render as Jinja2 does it', async t => {
  const context = tryParseJson(recorded.context) as PythonDict
  const delegated: string[] = []
  for (const [source, expected] of recorded.snippets) {
    try {
      t.equal(new ChatTemplate(source).render(context), expected, JSON.stringify(source))
    } catch (error) {
      if (!(error instanceof RenderingRefusedError)) throw error
      if (expected !== null) delegated.push(`${source}: ${error.details['why']}`)
    }
  }
  t.strictSame(delegated, DELEGATED_SNIPPETS)
})

t.test('texts encode and decode as the native tokenizer does it', async t => {
  const tokenizer = await PromptTokenizer.load(TINY)
  for (const [i, [text, ids]] of recorded.encodings.entries()) {
    t.strictSame([...tokenizer.encodeText(text)], ids, `text ${i} encodes`)
    t.equal(tokenizer.decode(ids), recorded.decodings[i], `text ${i} decodes`)
  }
})
