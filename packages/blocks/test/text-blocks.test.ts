import fc from 'fast-check'
import t from 'tap'
import { addHashes, hashBlocks, hashText, namespaceSeed, textTokens, xxh3 } from '../src/index.ts'

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)
const TEXT = 'The pigeon that carries the message flies home by the sun and the lie of the land.'

t.test('a piece is four bytes per token of a block, hashed by itself', async t => {
  const { count, local } = hashText(utf8(TEXT), 4, {})
  t.equal(count, Math.floor(TEXT.length / 16))
  const seed = addHashes(namespaceSeed({}), xxh3(utf8('text'), { lo: 2, hi: 0 }))
  for (let piece = 0; piece < count; piece++) {
    const hash = xxh3(utf8(TEXT.slice(16 * piece, 16 * piece + 16)), seed)
    t.strictSame([local[2 * piece], local[2 * piece + 1]], [hash.lo, hash.hi])
  }
  t.equal(textTokens(utf8(TEXT).length), Math.ceil(TEXT.length / 4))
})

t.test('pieces are no blocks of tokens, and those of adapters and salts are others', async t => {
  const words = new Int32Array(utf8(TEXT.slice(0, 64)).slice().buffer)
  const tokens = hashBlocks(words, 4, namespaceSeed({})).local
  const namespaces = [{}, { loraName: 'text' }, { cacheSalt: 'text' }, { loraName: 'a', cacheSalt: 'text' }]
  const first = namespaces.map(namespace => hashText(utf8(TEXT), 4, namespace).local.slice(0, 2).join())
  t.equal(new Set([...first, tokens.slice(0, 2).join()]).size, namespaces.length + 1)
})

t.test('texts share as many pieces as they share bytes', async t => {
  const property = fc.property(fc.string({ unit: 'grapheme' }), fc.string(), fc.string(), (begin, a, b) => {
    const [first, second] = [utf8(begin + a), utf8(begin + b)]
    let shared = 0
    while (shared < Math.min(first.length, second.length) && first[shared] === second[shared]) shared++
    const [x, y] = [hashText(first, 1, {}), hashText(second, 1, {})]
    let pieces = 0
    while (pieces < Math.min(x.count, y.count) && isSame(x.local, y.local, pieces)) pieces++
    return pieces === Math.floor(shared / 4)
  })
  t.doesNotThrow(() => fc.assert(property))
})

function isSame(a: Int32Array, b: Int32Array, at: number): boolean {
  return a[2 * at] === b[2 * at] && a[2 * at + 1] === b[2 * at + 1]
}
