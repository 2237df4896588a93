import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { detectBinMs, parseWorkload } from '../src/index.ts'

async function binOf(folder: string, times: readonly number[]): Promise<number> {
  const path = join(folder, 'trace.jsonl')
  const lines = times.map(timestamp =>
    JSON.stringify({ timestamp, input_length: 512, output_length: 1, hash_ids: [1] }),
  )
  writeFileSync(path, `${lines.join('\n')}\n`)
  return detectBinMs(await parseWorkload(path))
}

t.test('bins of 3 s are found, also where some stand 1 ms before their multiple', async t => {
  const folder = t.testdir()
  // As in the conversation trace of Mooncake.
  t.equal(await binOf(folder, [0, 0, 0, 3000, 3000, 5999, 5999, 5999, 41_999, 41_999, 45_000, 45_000]), 3000)
  t.equal(await binOf(folder, [0, 0, 0, 3000, 3000, 5998, 5998]), 0, 'other times are times')
  t.equal(await binOf(folder, [0, 3000, 6000, 9000]), 0, 'one request every 3 s is no bin')
})
