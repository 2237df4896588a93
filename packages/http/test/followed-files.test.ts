/** Files that are followed: what counts of them, over changes, faults and lives. */

import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SimulatedClock } from '@homing/base'
import t from 'tap'
import { FollowedFiles } from '../src/index.ts'

const clock = new SimulatedClock()

function follow(folder: string) {
  const seen: string[] = []
  let parsed = 0
  const files = new FollowedFiles<string>({
    files: [{ option: '--file', path: join(folder, 'file') }],
    bytesMax: 100,
    parse: ([text]) => {
      parsed++
      if (text === 'bad') throw new Error('it is bad')
      return text!
    },
    value: 'start',
    changed: value => void seen.push(value),
    log: undefined,
  })
  const write = (text: string): void => {
    writeFileSync(join(folder, 'new'), text)
    renameSync(join(folder, 'new'), join(folder, 'file'))
  }
  return { files, seen, write, parses: () => parsed }
}

t.test('a text counts after two looks, what cannot be used does not', async t => {
  const folder = t.testdir({ file: 'one' })
  const { files, seen, write, parses } = follow(folder)
  await files.begin(clock)
  t.strictSame([files.value, seen, files.counts.loaded], ['one', ['one'], 0])
  write('two')
  await files.look()
  t.equal(files.value, 'one')
  await files.look()
  t.strictSame([files.value, files.counts.loaded], ['two', 1])
  write('bad')
  for (let look = 0; look < 4; look++) await files.look()
  t.match(files.fault, /it is bad/)
  t.strictSame([files.value, files.counts.refused, parses()], ['two', 1, 3])
  rmSync(join(folder, 'file'))
  await files.look()
  t.match(files.fault, /cannot be read: ENOENT/)
  write('two')
  for (let look = 0; look < 4; look++) await files.look()
  t.strictSame([files.value, files.fault, parses()], ['two', undefined, 4])
  t.equal(clock.pendingCount, 0)
})

t.test('what counted last counts in a later life, not what its owner was given at the start', async t => {
  const folder = t.testdir({ file: 'one' })
  const first = follow(folder)
  await first.files.begin(clock)
  first.write('revoked')
  for (let look = 0; look < 2; look++) await first.files.look()
  first.write('bad')
  const second = follow(folder)
  await second.files.begin(clock)
  t.strictSame([second.files.value, second.seen], ['revoked', ['revoked']])
  t.match(second.files.fault, /it is bad/)
  second.write('three')
  const third = follow(folder)
  await third.files.begin(clock)
  t.equal(third.files.value, 'three')
})
