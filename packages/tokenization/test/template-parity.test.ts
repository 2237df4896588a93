/**
 * What Jinja2 3.1.6 renders of every filter, test, method and statement that it has, with values of many
 * kinds, and of templates drawn from a grammar of them, recorded by fixtures/record_templates.py. The rule:
 * a rendering is equal, or it is refused; and the last test holds what chat templates may use and is
 * refused.
 */

import { readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { ChatTemplate, type PythonDict, RenderingRefusedError, tryParseJson } from '../src/index.ts'

interface Recorded {
  readonly context: string
  readonly grids: readonly {
    readonly pattern: string
    readonly values: readonly string[]
    readonly others: readonly string[]
    readonly results: readonly (readonly (string | null)[])[]
  }[]
  readonly snippets: readonly Snippet[]
  readonly drawn: readonly Snippet[]
  readonly times: readonly (readonly [
    parts: readonly [number, number, number, number, number, number],
    printed: readonly (readonly [format: string, text: string])[],
  ])[]
}

type Snippet = readonly [source: string, rendered: string | null]

const recorded: Recorded = JSON.parse(
  readFileSync(new URL('fixtures/jinja2-3.1.6-templates.json', import.meta.url), 'utf8'),
)
const context = tryParseJson(recorded.context) as PythonDict

/** Why it is refused, or what is rendered. */
function render(
  source: string,
  variables = context,
  now?: Date,
): { readonly text?: string; readonly why?: string } {
  try {
    return { text: new ChatTemplate(source).render(variables, { now }) }
  } catch (error) {
    if (!(error instanceof RenderingRefusedError)) throw error
    return { why: String(error.details['why']) }
  }
}

/** Compares all; returns how many of those that Jinja2 renders are rendered here, from 0 to 1. */
function compare(t: Test, snippets: readonly Snippet[]): number {
  const wrong: object[] = []
  let renderable = 0
  let equal = 0
  for (const [source, expected] of snippets) {
    // A template that Jinja2 refuses is refused by the engine, whatever it is here.
    if (expected === null) continue
    renderable++
    const { text } = render(source)
    if (text === expected) equal++
    else if (text !== undefined) wrong.push({ source, expected, text })
  }
  t.strictSame(wrong, [])
  return equal / renderable
}

t.test('filters, tests and methods with values of every kind', async t => {
  for (const { pattern, values, others, results } of recorded.grids) {
    const snippets = others.flatMap((other, row) =>
      values.map((value, column): Snippet => {
        const source = pattern.replace('V', () => value).replace('X', () => other)
        return [source, results[row]![column]!]
      }),
    )
    const share = compare(t, snippets)
    t.ok(share > 0.8, `${pattern}: ${share} of what Jinja2 renders`)
  }
})

t.test('literals, operators, statements and the space around them', async t => {
  const share = compare(t, recorded.snippets)
  t.ok(share > 0.65, `${share} of what Jinja2 renders`)
})

t.test('templates that are drawn at random', async t => {
  t.ok(compare(t, recorded.drawn) > 0.8)
})

t.test('dates, as the C locale prints them', async t => {
  const refused = new Set<string>()
  for (const [[year, month, day, hours, minutes, seconds], printed] of recorded.times) {
    const now = new Date(year, month - 1, day, hours, minutes, seconds)
    for (const [format, expected] of printed) {
      const { text } = render('{{ strftime_now(format) }}', new Map([['format', format]]), now)
      if (text === undefined) refused.add(format)
      else t.equal(text, expected, `${format} at ${now.toISOString()}`)
    }
  }
  t.strictSame(
    [...refused],
    // Of a second, of C libraries, or of no meaning.
    [
      '%f',
      '%q',
      '%',
      '%-',
      '%E',
      '%Ey',
      '%_d',
      '%^a',
      '%#a',
      '%10Y',
      '%s',
      '%L',
      '%N',
      '%i',
      '%-B',
      '%-A',
    ].concat(['%:z', '%g', '%+', '%v']),
  )
})

t.test('what was given to the engine needlessly is rendered', async t => {
  const renderings: readonly Snippet[] = [
    ["{{ '<a>' + (s | safe) }}", '&lt;a&gt;Hello, World'],
    ["{{ '%s: %05.1f' | format(s, f) }}", 'Hello, World: 002.5'],
    ["{{ {1: 'a', none: 'b'}[1] }}", 'a'],
    ['{% raw %}{{ s }}{% endraw %}', '{{ s }}'],
    ['{% with x = n %}{{ x }}{% endwith %}', '3'],
    ['{{ 1 < n < 5 }}{{ n is divisibleby(3) }}{{ [1e3, (1,)] }}', 'TrueTrue[1000.0, (1,)]'],
  ]
  for (const [source, expected] of renderings) t.strictSame(render(source), { text: expected }, source)
  const now = new Date(2026, 10, 28, 1, 2, 3)
  t.strictSame(render("{{ strftime_now('%H:%M:%S') }}", context, now), { text: '01:02:03' })
})

t.test('what is refused says by name what it is', async t => {
  const refusals: readonly (readonly [source: string, why: RegExp])[] = [
    ...['attr', 'filesizeformat', 'groupby', 'pprint', 'random', 'striptags', 'urlencode', 'urlize'].map(
      name => [`{{ s|${name}('x') }}`, new RegExp(`the filter ${name}$`)] as const,
    ),
    ...['autoescape', 'block', 'extends', 'from', 'import', 'include', 'print'].map(
      name => [`{% ${name} x %}`, new RegExp(`uses \\{% ${name} %\\}`)] as const,
    ),
    ...['filter', 'test'].map(name => [`{{ s is ${name} }}`, new RegExp(`the test ${name}$`)] as const),
    ...['cycler', 'joiner', 'lipsum'].map(name => [`{{ ${name}() }}`, new RegExp(`uses ${name}$`)] as const),
    ['{% for x in l recursive %}{% endfor %}', /a recursive loop/],
    ["{{ ('%s' | safe) | format('<') }}", /the filter format on text that is marked as safe/],
    ['{{ {1.5: 1} }}', /a dict with a float for a key/],
    ["{{ 'x'.encode() }}", /str\.encode/],
    ['{{ d.update({}) }}', /dict\.update/],
  ]
  for (const [source, why] of refusals) t.match(render(source).why, why, source)
})
