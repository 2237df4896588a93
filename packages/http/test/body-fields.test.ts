/** Body fields: what is read, and the sentence about what cannot be. */

import t from 'tap'
import { BodyFields } from '../src/body-fields.ts'

class Refused extends Error {}

const fieldsOf = (body: unknown) =>
  new BodyFields(
    'do it',
    new TextEncoder().encode(typeof body === 'string' ? body : JSON.stringify(body)),
    (action, why) => new Refused(`cannot ${action}: ${why}`),
  )

t.test('64-bit numbers are not rounded, whichever way they are written', async t => {
  const fields = fieldsOf(
    '{"id": 18446744073709551615, "text": "18446744073709551615", "h": [-1, "18446744073709551614"]}',
  )
  t.equal(fields.unsigned64('id'), 2n ** 64n - 1n)
  t.equal(fields.unsigned64('text'), 2n ** 64n - 1n)
  t.strictSame([...fields.hashes('h')], [-1, -1, -2, -1])
})

t.test('null is as if the field were not there', async t => {
  const fields = fieldsOf({ a: null, name: null })
  t.notOk(fields.has('a'))
  t.equal(fields.integer('a', 0, 9, 4), 4)
  t.equal(fields.name('name', 'preset'), 'preset')
  t.notOk(fieldsOf('{"toString": null}').has('constructor'), 'nor is what objects inherit')
})

t.test('what cannot be is told with the name and the value of the field, and no secret', async t => {
  const fields = fieldsOf({ n: 10, text: 'sk-secret', list: [1, 2], hashes: [0.5], tokens: [-1] })
  const says = (read: () => unknown, sentence: string) =>
    t.throws(read, new Refused(`cannot do it: ${sentence}`))
  says(() => fields.integer('n', 0, 9), 'n must be a whole number from 0 to 9, not 10')
  says(() => fields.integer('text', 0, 9), 'text must be a whole number from 0 to 9, not a string')
  says(() => fields.integer('list', 0, 9), 'list must be a whole number from 0 to 9, not a list')
  says(() => fields.integer('other', 0, 9), 'other is missing')
  says(() => fields.name('n'), 'n must be a string')
  says(() => fields.name('text', undefined, 4), 'text has more than 4 characters')
  says(() => fields.unsigned64('text'), 'text must be a whole number from 0 to 18446744073709551615')
  says(() => fields.hashes('hashes'), 'hashes[0] must be a 64-bit whole number')
  says(() => fields.tokens('tokens'), 'tokens[0] must be a whole number from 0 to 4294967295')
  says(() => fields.list('n'), 'n must be a list of numbers')
  says(() => fieldsOf('[]'), 'the body is not a JSON object')
  t.throws(() => fieldsOf('{'), /cannot do it: the body is not JSON: /)
})
