import { readFileSync } from 'node:fs'
import t from 'tap'
import { wasmTexts } from './build-wasm.ts'

t.test('the WebAssembly in the repository is what its sources compile to', async t => {
  const texts = await wasmTexts()
  t.equal(texts.size, 5)
  for (const [path, text] of texts) t.equal(text, readFileSync(path, 'utf8'), path)
})
