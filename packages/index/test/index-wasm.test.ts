import { readFileSync } from 'node:fs'
import t from 'tap'
import { indexWasmTexts } from '../wasm/build.ts'

t.test('the committed loops are what the compiler makes of the source', async t => {
  for (const [path, text] of await indexWasmTexts()) t.equal(text, readFileSync(path, 'utf8'))
})
