/** Resident parts: what the system calls resident, by the kind of mapping. */

import { readFileSync } from 'node:fs'
import t from 'tap'
import { Metrics } from '../src/index.ts'
import { RESIDENT_PARTS, residentParts } from '../src/resident-parts.ts'

t.test('each kind of mapping has its part', async t => {
  const mapping = (head: string, kb: number): string =>
    `${head}\nSize: 99 kB\nRss:   ${kb} kB\nPss: 7 kB\nTHPeligible: 0\nVmFlags: rd wr mr\n`
  const text = [
    mapping('00400000-00745000 r--p 00000000 fe:00 2222                       /usr/bin/node', 1),
    mapping('0074a000-03201000 r-xp 00349000 fe:00 2222                       /usr/bin/node', 2),
    mapping('34096000-3682a000 rw-p 00000000 00:00 0                          [heap]', 4),
    mapping('7f0938000000-7f09388a9000 rw-p 00000000 00:00 0 ', 8),
    mapping('7f09388a9000-7f093c000000 ---p 00000000 00:00 0 ', 0),
    mapping('7f08ff000000-7f091ed80000 rwxp 00000000 00:00 0 ', 16),
    mapping('1c96b80000-1c96bc0000 rw-p 00000000 00:00 0 ', 32),
    mapping('7efa8c000000-7efa90000000 rw-s 00000000 00:01 5                  /dev/zero (deleted)', 64),
    mapping('7f0927001000-7f0927002000 rw-p 00000000 00:00 0 ', 128),
    mapping('7ffd6b3f9000-7ffd6b41b000 rw-p 00000000 00:00 0                  [stack]', 256),
  ].join('')
  const kib = Object.fromEntries(
    Object.entries(residentParts(text)).map(([part, bytes]) => [part, bytes / 1024]),
  )
  t.strictSame(kib, { program: 3, compiled: 16, allocator: 12, heaps: 96, other: 384 })
})

t.test(
  'the gauges of this process add up to what the system reports',
  { skip: process.platform !== 'linux' && 'mappings are read from /proc' },
  async t => {
    const metrics = new Metrics()
    metrics.observeProcess()
    const text = await metrics.render()
    const value = (name: string): number => Number(text.split(`${name} `)[1]!.split('\n')[0])
    const parts = RESIDENT_PARTS.map(part => value(`homing_process_resident_bytes{part="${part}"}`))
    const sum = parts.reduce((total, bytes) => total + bytes, 0)
    const resident = Number(/VmRSS:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))![1]) * 1024
    // Pages come and go between the two readings.
    t.ok(Math.abs(sum - resident) < 0.2 * resident, `${sum} of ${resident}`)
    for (const [at, part] of RESIDENT_PARTS.entries()) t.ok(parts[at]! > 0, part)
  },
)
