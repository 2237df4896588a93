/** What the fleet makes of the file of --workers-file as it changes. */

import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { parseWorkersFile } from '@homing/fleet'
import t from 'tap'
import { type DirectoryWorld, world } from './directory-world.ts'

/** What Node calls a step of a file that is read: between two of them no turn ends. */
const FILE_STEPS: readonly string[] = ['FSReqPromise', 'CloseReq']

/** Reading is real, time is not: a look has been taken when its result was handled. */
async function looks(w: DirectoryWorld, count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    await w.system.advance('1s')
    while (process.getActiveResourcesInfo().some(name => FILE_STEPS.includes(name)))
      await new Promise(resolve => setImmediate(resolve))
    await w.system.settle()
  }
}

t.test('the fleet follows the file', async t => {
  const w = await world(t)
  for (const host of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) await w.engine(host)
  const folder = t.testdir({ workers: 'http://10.0.0.1:8000\n' })
  const path = join(folder, 'workers')
  await w.begin(['http://10.0.0.3:8000'], {
    fileWorkers: { path, urls: parseWorkersFile('http://10.0.0.1:8000', path) },
  })
  const states = () => Object.fromEntries(w.fleet.workers.map(({ id, state }) => [id.slice(7, 8), state]))
  t.strictSame(states(), { 1: 'up', 3: 'up' })

  writeFileSync(path, 'http://10.0.0.1:8000\nhttp://10.0.0.2:8000\n')
  await looks(w, 3)
  t.strictSame(states(), { 1: 'up', 2: 'up', 3: 'up' })

  writeFileSync(path, 'http://10.0.0.2:8000\n')
  await looks(w, 3)
  t.strictSame(states(), { 1: 'draining', 2: 'up', 3: 'up' })

  // It is wanted again before it has left.
  writeFileSync(path, 'http://10.0.0.2:8000\nhttp://10.0.0.1:8000\n')
  await looks(w, 3)
  t.strictSame(states(), { 1: 'up', 2: 'up', 3: 'up' })

  for (const broken of ['', 'http://10.0.0.2:80', 'nonsense here', 'workers: [http://10.0.0.2:8000']) {
    if (broken === 'http://10.0.0.2:80') {
      // Half written: it is whole by the next look.
      writeFileSync(path, broken)
      await looks(w, 1)
      writeFileSync(path, 'http://10.0.0.2:8000\nhttp://10.0.0.1:8000\n')
    } else writeFileSync(path, broken)
    await looks(w, 3)
    t.strictSame(states(), { 1: 'up', 2: 'up', 3: 'up' }, JSON.stringify(broken))
  }
  t.match(
    w.log.lines.filter(({ text }) => /workers file is left aside/.test(text)),
    [{}, {}, {}],
    'each fault is told once',
  )
  rmSync(path)
  mkdirSync(path)
  await looks(w, 3)
  rmSync(path, { recursive: true })
  await looks(w, 3)
  t.strictSame(states(), { 1: 'up', 2: 'up', 3: 'up' })

  // As a mounted ConfigMap does: another file behind a link.
  writeFileSync(join(folder, 'next'), 'http://10.0.0.2:8000?kv_blocks=7\n')
  symlinkSync(join(folder, 'next'), join(folder, 'link'))
  renameSync(join(folder, 'link'), path)
  await looks(w, 3)
  t.strictSame(states(), { 1: 'draining', 2: 'up', 3: 'up' })
  t.match(
    w.fleet.workers.find(({ id }) => id === '10.0.0.2:8000'),
    { kvBlocks: { value: 7, source: 'given' } },
    'other parameters',
  )

  writeFileSync(path, 'workers: []\n')
  await looks(w, 3)
  t.strictSame(states(), { 1: 'draining', 2: 'draining', 3: 'up' }, 'who was given otherwise stays')
})
