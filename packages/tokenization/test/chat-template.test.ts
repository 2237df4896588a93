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
