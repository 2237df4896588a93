/** The committed tokenizer directory equals what the script makes of its text. */

import { mkdtemp, readdir, readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { makeTokenizerDirectory, tokenizerFiles } from '../scripts/make-tokenizer.ts'
import { PromptTokenizer } from '../src/index.ts'

const TINY = new URL('../fixtures/tiny', import.meta.url).pathname

t.test('the script makes the committed directory again, byte by byte', async t => {
  const files = tokenizerFiles()
  t.strictSame((await readdir(TINY)).sort(), [...files.keys()].sort())
  for (const [name, text] of files) t.equal(await readFile(join(TINY, name), 'utf8'), text, name)
})

t.test('the directory can be written anywhere and used', async t => {
  const directory = await mkdtemp(join(tmpdir(), 'homing-tokenizer-'))
  await makeTokenizerDirectory(directory)
  const tokenizer = await PromptTokenizer.load(directory)
  t.equal(
    tokenizer.decode(tokenizer.encodeText('The engine keeps the prefix.')),
    'The engine keeps the prefix.',
  )
  t.equal(tokenizer.tokenId('<|im_end|>'), 1458)
  t.equal(tokenizer.chatHazard, undefined)
})
