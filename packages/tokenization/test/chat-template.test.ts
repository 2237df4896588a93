/** What templates print beside the recorded texts of Jinja2 (parity.test.ts). */

import t from 'tap'
import { ChatTemplate } from '../src/chat-template.ts'

const none = new Map()

t.test('what a turn prints into a variable or a filter is lost when the turn is left there', async t => {
  // As Jinja2 3.1.6 prints it, with the extension loopcontrols.
  const inSet = '{% for x in [1, 2] %}b{% set y %}a{% break %}{% endset %}{% endfor %}|'
  t.equal(new ChatTemplate(inSet).render(none), 'b|')
})

t.test('texts that are printed as they are, are pieces as they are, in sums too', async t => {
  const variables = new Map([['long', 'a long text']])
  const template = new ChatTemplate("{{ '<' + long + '>' }}{{ 1 + 2 }}{{ long }}")
  t.strictSame(template.renderPieces(variables), ['<', 'a long text', '>', '3', 'a long text'])
  t.throws(() => new ChatTemplate("{{ 'a' + long + 1 }}").render(variables), /str \+ int/)
})

t.test('what would take too long or too much is refused, so that the engine is asked', async t => {
  const deep = `{{ ${Array.from({ length: 20_000 }, () => '1').join(' ~ ')} }}`
  const doubled =
    "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
  for (const text of [
    '{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}',
    '{{ [1] | batch(1000000000, 0) | list }}',
    doubled,
    doubled.replaceAll('~', '+'),
    doubled.replaceAll('~', '+').replace("'aaaaaaaa'", '[1, 2]'),
    "{{ 'a' | indent(1000000000) }}",
    "{{ 'a' | tojson(indent=1000000000) }}",
    "{{ range(1000) | join('a' * 1000000) }}",
    "{{ ('a' * 1000000).join(range(1000) | map('string')) }}",
    deep,
  ]) {
    const render = () => new ChatTemplate(text).render(none)
    t.throws(render, { code: 'HOMING_TOKENIZATION_RENDERING_REFUSED' }, text.slice(0, 60))
  }
})
