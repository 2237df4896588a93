/** Headers of one connection: which they are, and that there is one list of them. */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { CONNECTION_HEADERS, passedOn } from '../src/connection-headers.ts'
import { mutationOf } from '../src/ext-proc/words.ts'
import { endToEndHeaders } from '../src/headers.ts'

const ROOT = new URL('../../../', import.meta.url)
const OF_CONNECTION = Object.fromEntries([...CONNECTION_HEADERS].map(name => [name, 'x']))

t.test('a call sends none of them, however they are written', async t => {
  const headers = { ...OF_CONNECTION, 'Keep-Alive': '9', TE: 'trailers', 'x-kept': '1' }
  t.strictSame(endToEndHeaders(headers), { 'x-kept': '1' })
})

t.test('an Envoy is told of none of them', async t => {
  const { set_headers: set, remove_headers: removed } = mutationOf(OF_CONNECTION, { 'x-set': '1' })
  t.strictSame([set?.map(({ header }) => header?.key), removed], [['x-set'], []])
  const { set_headers: added } = mutationOf({}, OF_CONNECTION)
  t.strictSame(added, [])
})

t.test('a message goes on without them, and without those that its header connection names', async t => {
  const named = { 'x-drop': '1', 'http2-settings': 'AAA' }
  const kept = { 'x-kept': '2', accept: ['a', 'b'] }
  for (const connection of ['close, X-Drop,http2-settings', ['close', 'X-Drop', 'HTTP2-Settings']])
    t.strictSame(
      passedOn({ ...OF_CONNECTION, ...named, ...kept, host: 'h', connection }, name => name === 'host'),
      kept,
    )
  t.strictSame(
    passedOn({ ...named, 'x-kept': undefined }, () => false),
    { ...named, 'x-kept': undefined },
  )
})

t.test('no other file lists them', async t => {
  const lists: string[] = []
  for (const group of ['packages', 'actors'])
    for (const name of readdirSync(new URL(group, ROOT))) {
      const src = new URL(`${group}/${name}/src/`, ROOT)
      if (!existsSync(src)) continue
      for (const path of readdirSync(src, { recursive: true, encoding: 'utf8' }))
        if (path.endsWith('.ts') && readFileSync(new URL(path, src), 'utf8').includes("'proxy-connection'"))
          lists.push(`${group}/${name}/src/${path}`)
    }
  t.strictSame(lists, ['packages/transport/src/connection-headers.ts'])
})
