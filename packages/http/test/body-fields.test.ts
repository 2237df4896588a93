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
  says(() => fields.flag('n', true), 'n must be true or false')
  says(() => fields.object('list'), 'list must be an object')
  t.throws(() => fieldsOf('{'), /cannot do it: the body is not JSON: /)
})

t.test('a value out of range is told apart from one of another type', async t => {
  const faultOf = (body: unknown, read: (fields: BodyFields) => unknown): unknown => {
    try {
      const bytes = new TextEncoder().encode(typeof body === 'string' ? body : JSON.stringify(body))
      read(
        new BodyFields('do it', bytes, (_action, _why, fault) => Object.assign(new Error(fault), { fault })),
      )
      return 'none'
    } catch (thrown) {
      return (thrown as { readonly fault: string }).fault
    }
  }
  const whole = (fields: BodyFields) => fields.integer('n', 1, 9)
  t.equal(faultOf({ n: 3 }, whole), 'none')
  t.equal(faultOf({ n: 0 }, whole), 'unusable')
  t.equal(faultOf({ n: 10 }, whole), 'unusable')
  for (const n of [-1, 1.5, '3', [3], true, undefined, null]) t.equal(faultOf({ n }, whole), 'mistyped')
  t.equal(
    faultOf({ n: '' }, fields => fields.name('n')),
    'unusable',
  )
  t.equal(
    faultOf({ n: 1 }, fields => fields.name('n')),
    'mistyped',
  )
  t.equal(
    faultOf({}, fields => fields.name('n')),
    'mistyped',
  )
  t.equal(faultOf('[]', whole), 'mistyped')
  t.equal(faultOf('{', whole), 'unusable')
  t.equal(
    faultOf({ n: [-1] }, fields => fields.tokens('n')),
    'mistyped',
  )
})
