import t from 'tap'
import { editMembers, type MemberChanges, scanRequest } from '../src/index.ts'

function edited(body: string, changes: MemberChanges): string {
  const bytes = Buffer.from(body)
  return Buffer.from(editMembers(bytes, scanRequest(bytes), changes)).toString()
}

t.test('members are set and cut, and every other byte stays', async t => {
  const cases: readonly (readonly [string, MemberChanges, string])[] = [
    ['{ "a" : 1.0,\n"b":2 }', { set: { a: '3' } }, '{ "a" : 3,\n"b":2 }'],
    ['{"a":1 ,"b":2}', { set: { c: '{}' } }, '{"a":1 ,"b":2,"c":{}}'],
    ['{}', { set: { a: '1', b: '2' } }, '{"a":1,"b":2}'],
    ['{"a":1,"b":2,"c":3}', { set: {}, cut: ['b'] }, '{"a":1,"c":3}'],
    ['{"a":1,"b":2,"c":3}', { set: {}, cut: ['a', 'b'] }, '{"c":3}'],
    ['{"a":1,"b":2,"c":3}', { set: { d: '4' }, cut: ['b', 'c'] }, '{"a":1,"d":4}'],
    ['{"a":1,"b":2}', { set: { d: '4' }, cut: ['a', 'b'] }, '{"d":4}'],
    ['{"a":1,"a":2}', { set: { a: '3' } }, '{"a":1,"a":3}'],
    ['{"a":1,"x":0,"a":2}', { set: { a: '3' }, cut: ['a'] }, '{"x":0,"a":3}'],
    [
      '{"é":"a\\u00e9","r":4611686018427387905}',
      { set: { b: '1' } },
      '{"é":"a\\u00e9","r":4611686018427387905,"b":1}',
    ],
  ]
  for (const [body, changes, expected] of cases) t.equal(edited(body, changes), expected, body)
})

t.test('what comes out is what JSON makes of it', async t => {
  const names = ['a', 'b', 'c', 'd']
  const body = '{"a":[1,{"b":2}], "b" : "x,\\"}" ,"c":null,"d":{"a":1}}'
  for (let cutBits = 0; cutBits < 16; cutBits++)
    for (let setBits = 0; setBits < 16; setBits++) {
      const cut = names.filter((_, i) => (cutBits & (1 << i)) !== 0)
      const set = Object.fromEntries(
        names.filter((_, i) => (setBits & (1 << i)) !== 0).map(name => [name, '9']),
      )
      const expected = JSON.parse(body) as Record<string, unknown>
      for (const name of cut) delete expected[name]
      for (const name of Object.keys(set)) expected[name] = 9
      t.strictSame(JSON.parse(edited(body, { set: { ...set, e: '0' }, cut })), { ...expected, e: 0 })
    }
})
