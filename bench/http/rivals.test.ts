import { spawnSync } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { cpuMsBetween, knowsCpuTime, type TreeUsage, treeUsage } from './processes.ts'
import { findRival, howToInstall, RIVALS, versionOf } from './rivals.ts'

const place = {
  ...{ port: 1234, ownPort: 1235, engines: ['http://127.0.0.1:1', 'http://127.0.0.1:2'] },
  modelFolder: '/model',
}

t.test('a rival is found where its variable says, else on PATH, and says its version', async t => {
  const folder = t.testdir({})
  const file = join(folder, 'smg')
  writeFileSync(file, '#!/bin/sh\necho "smg 9.8.7-b1"\n')
  const smg = RIVALS['smg']!
  const { PATH, HOMING_BENCH_SMG } = process.env
  t.teardown(() => {
    process.env['PATH'] = PATH
    if (HOMING_BENCH_SMG === undefined) delete process.env['HOMING_BENCH_SMG']
    else process.env['HOMING_BENCH_SMG'] = HOMING_BENCH_SMG
  })
  delete process.env['HOMING_BENCH_SMG']
  process.env['PATH'] = folder
  t.equal(findRival(smg), undefined, 'a file that is no program is none')
  t.equal(versionOf(smg), undefined)
  chmodSync(file, 0o755)
  t.equal(findRival(smg), file)
  process.env['PATH'] = '/nowhere'
  process.env['HOMING_BENCH_SMG'] = file
  t.equal(versionOf(smg), '9.8.7-b1')
  process.env['HOMING_BENCH_SMG'] = '/nowhere/smg'
  t.throws(() => findRival(smg), { message: 'HOMING_BENCH_SMG=/nowhere/smg: not a program' })
})

for (const [name, rival] of Object.entries(RIVALS)) {
  t.test(`${name} gets its port and the engines, and it is said how to have it`, async t => {
    const { words } = rival.command('/bin/rival', { ...place, folder: t.testdir({}) })
    t.ok(name === 'nginx' || words.join(' ').includes('1234'), words.join(' '))
    t.ok(rival.engines !== undefined || name === 'nginx' || place.engines.every(url => words.includes(url)))
    t.match(howToInstall(rival), new RegExp(`^(pip|apt-get) install .*${rival.variable}`))
  })
}

t.test('CPU time is of all threads; where one has ended, of the processes', async t => {
  const usage = (threads: readonly (readonly [number, number])[], processesMs: number): TreeUsage => ({
    threadsMs: new Map(threads),
    processesMs,
    residentMb: 0,
  })
  t.equal(
    cpuMsBetween(
      usage([[1, 10]], 10),
      usage(
        [
          [1, 12.5],
          [2, 3],
        ],
        10,
      ),
    ),
    5.5,
    'to the nanosecond',
  )
  t.equal(
    cpuMsBetween(
      usage(
        [
          [1, 10],
          [2, 5],
        ],
        20,
      ),
      usage([[1, 12]], 60),
    ),
    40,
    'in steps of 10 ms',
  )
})

t.test('a process that has gone takes nothing', knowsCpuTime ? {} : { skip: 'no /proc' }, async t => {
  const gone = spawnSync(process.execPath, ['--version']).pid
  t.strictSame(treeUsage(gone), { threadsMs: new Map(), processesMs: 0, residentMb: 0 })
  t.ok(treeUsage(process.pid).residentMb > 10)
})
