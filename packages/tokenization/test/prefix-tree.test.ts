import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { ByteWindows, PrefixTree, TextWindows } from '../src/prefix-tree.ts'

const WINDOW = 4

/** Texts of few windows, many of which begin alike; a rest that fills no window. */
const texts = fc.array(
  fc
    .tuple(
      fc.array(fc.constantFrom('aaaa', 'abab', 'bbbb', 'é漢éé'), { maxLength: 6 }),
      fc.constantFrom('', 'a', 'bbb'),
    )
    .map(([windows, rest]) => windows.join('') + rest),
  { minLength: 10, maxLength: 40 },
)

t.test(
  'finds just the windows that were grown, in texts and in bytes, each with what it carries',
  async t => {
    let found = 0
    fc.assert(
      fc.property(texts, fc.array(fc.nat(2), { minLength: 40, maxLength: 40 }), (all, scopes) => {
        const byText = new PrefixTree<string, string>(1e9)
        const byBytes = new PrefixTree<Uint8Array, string>(1e9)
        const known = new Set<string>()
        for (const [i, text] of all.entries()) {
          const scope = scopes[i]!
          const source = new TextWindows(text, WINDOW)
          const path = byText.find(scope, source)
          let longest = 0
          while (longest < source.windows && known.has(`${scope}${text.slice(0, (longest + 1) * WINDOW)}`))
            longest++
          assert.equal(path.length, longest)
          found += longest
          for (const [number, node] of path.entries()) {
            assert.deepEqual([node.number, node.payload], [number, text.slice(0, (number + 1) * WINDOW)])
          }
          byText.grow(scope, path, source, number => ({
            payload: text.slice(0, (number + 1) * WINDOW),
            bytes: 1,
          }))
          for (let end = WINDOW; end <= text.length; end += WINDOW) known.add(`${scope}${text.slice(0, end)}`)
          assert.equal(byText.find(scope, source).length, source.windows)

          const bytes = new ByteWindows(Buffer.from(text, 'utf16le'), WINDOW * 2)
          const samePath = byBytes.find(scope, bytes)
          assert.equal(samePath.length, longest)
          byBytes.grow(scope, samePath, bytes, number => ({ payload: `${number}`, bytes: 1 }))
        }
      }),
    )
    t.ok(found > 100, `${found} windows were found again`)
  },
)

t.test('stays inside its bound whatever is added, and forgets what was unused for longest', async t => {
  const bytesMax = 4000
  const tree = new PrefixTree<string, number>(bytesMax)
  const remember = (text: string): number => {
    const source = new TextWindows(text, WINDOW)
    const path = tree.find(0, source)
    tree.grow(0, path, source, () => ({ payload: 0, bytes: 10 }))
    return path.length
  }
  const textOf = (number: number): string => `${String.fromCharCode(0x400 + number)}abc`.repeat(3)
  remember('keepkeepkeep')
  for (let number = 0; number < 1000; number++) {
    remember(textOf(number))
    t.ok(tree.bytes <= bytesMax)
    if (remember('keepkeepkeep') !== 3) t.fail(`forgotten after ${number}`)
  }
  t.equal(remember(textOf(1)), 0, 'what nobody asked for has gone')
  t.ok(tree.bytes > bytesMax / 2, 'the room is used')
  tree.clear()
  t.equal(tree.bytes, 0)
  t.equal(remember('keepkeepkeep'), 0)
})

t.test('a window too large for a quarter of the bound is not kept, and nothing behind it', async t => {
  const tree = new PrefixTree<string, number>(4000)
  const source = new TextWindows('aaaabbbbcccc', WINDOW)
  tree.grow(0, [], source, number => ({ payload: number, bytes: number === 1 ? 5000 : 1 }))
  t.equal(tree.find(0, source).length, 1)
})

t.test('texts whose samples are equal are told apart by what they are, and few of them are kept', async t => {
  const tree = new PrefixTree<string, string>(1e9)
  const long = 64
  // Of 64 letters only the first is looked at for the hash.
  const texts = Array.from({ length: 20 }, (_, i) => `a${String.fromCharCode(98 + i)}${'a'.repeat(62)}`)
  for (const text of texts) {
    const source = new TextWindows(text, long)
    const path = tree.find(0, source)
    t.equal(path.length, 0)
    tree.grow(0, path, source, () => ({ payload: text, bytes: 1 }))
  }
  const kept = texts.filter(text => tree.find(0, new TextWindows(text, long))[0]?.payload === text)
  t.equal(kept.length, 4)
  t.ok(kept.includes(texts.at(-1)!), 'the newest is one of them')
})

t.test('where those of equal samples have nodes below them, a newcomer is not kept', async t => {
  const tree = new PrefixTree<string, string>(1e9)
  const texts = Array.from(
    { length: 6 },
    (_, i) => `a${String.fromCharCode(98 + i)}${'a'.repeat(62)}${'z'.repeat(64)}`,
  )
  for (const text of texts) {
    const source = new TextWindows(text, 64)
    tree.grow(0, tree.find(0, source), source, () => ({ payload: text, bytes: 1 }))
  }
  t.strictSame(
    texts.map(text => tree.find(0, new TextWindows(text, 64)).length),
    [2, 2, 2, 2, 0, 0],
  )
})

t.test('one long sequence takes a quarter of the room at most, and leaves what others use', async t => {
  const tree = new PrefixTree<string, number>(100_000)
  const remember = (text: string): number => {
    const source = new TextWindows(text, WINDOW)
    const path = tree.find(0, source)
    tree.grow(0, path, source, () => ({ payload: 0, bytes: 10 }))
    return path.length
  }
  remember('keepkeepkeep')
  remember(Array.from({ length: 10_000 }, (_, i) => String.fromCharCode(0x100 + i).repeat(WINDOW)).join(''))
  t.ok(tree.bytes < 27_000, `${tree.bytes} bytes`)
  t.equal(remember('keepkeepkeep'), 3)
})
