/** The access log's file: whole lines, moved away, full, in a place where nothing can be written. */

import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type LineFiles, recordingLog, SimulatedClock } from '@homing/base'
import t from 'tap'
import { AccessLog, prepareAccessLog } from '../src/index.ts'

const linesOf = (path: string): unknown[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .slice(0, -1)
    .map(line => JSON.parse(line))

interface ScriptedFiles extends LineFiles {
  text: string
  room: number
  isMoved: boolean
  held: Promise<void> | undefined
}

/** One file, which takes `room` bytes; writes wait for `held`. */
function scriptedFiles(): ScriptedFiles {
  const files: ScriptedFiles = {
    text: '',
    room: Number.POSITIVE_INFINITY,
    isMoved: false,
    held: undefined,
    async open() {
      if (files.isMoved) files.text = ''
      files.isMoved = false
      return {
        bytes: files.text.length,
        cut: undefined,
        async append(bytes: Uint8Array) {
          await files.held
          if (files.room === 0) throw new Error('ENOSPC: no space left on device, write')
          const part = bytes.subarray(0, files.room)
          files.room -= part.length
          files.text += Buffer.from(part).toString()
          return part.length
        },
        isAt: async () => !files.isMoved,
        close: async () => {},
      }
    },
    async rename() {},
    async remove() {},
  }
  return files
}

/** Until all that can go on without time has. */
const settled = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await new Promise<void>(resolve => setImmediate(resolve))
}

t.test('lines are appended in order, and half a line of an earlier life is ended', async t => {
  const path = join(t.testdir({ log: '{"n":0}\n{"half' }), 'log')
  await prepareAccessLog(path)
  const log = new AccessLog({ path, log: recordingLog(), clock: new SimulatedClock() })
  for (let n = 1; n <= 2500; n++) log.write({ n, left: undefined })
  await log.close()
  const [first, half, ...others] = readFileSync(path, 'utf8').split('\n').slice(0, -1)
  t.strictSame([first, half], ['{"n":0}', '{"half'])
  t.strictSame(
    others,
    Array.from({ length: 2500 }, (_, at) => `{"n":${at + 1}}`),
  )
  t.equal(log.written, 2500)
  log.write({ n: 0 })
  t.equal(log.dropped, 1, 'it is closed')
})

t.test('a file that was moved away, removed or cut goes on under its name', async t => {
  const path = join(t.testdir(), 'log')
  const clock = new SimulatedClock()
  const log = new AccessLog({ path, log: recordingLog(), clock })
  const written = async (n: number) => {
    log.write({ n })
    while (log.written < n) await settled()
  }
  const looked = async () => {
    clock.advance(1000)
    while (!existsSync(path)) await settled()
  }
  await written(1)
  renameSync(path, `${path}.1`)
  await written(2)
  await looked()
  await written(3)
  t.strictSame(linesOf(`${path}.1`), [{ n: 1 }, { n: 2 }])
  t.strictSame(linesOf(path), [{ n: 3 }])
  truncateSync(path)
  await written(4)
  t.strictSame(linesOf(path), [{ n: 4 }])
  rmSync(path)
  await looked()
  t.strictSame(linesOf(path), [], 'it is begun at once')
  renameSync(path, `${path}.2`)
  await log.reopen()
  await written(5)
  t.strictSame(linesOf(path), [{ n: 5 }])
  await log.close()
})

t.test(
  'a disk that is full is said once; what found room is written when there is some, in whole lines',
  async t => {
    const [files, clock, said] = [scriptedFiles(), new SimulatedClock(), recordingLog()]
    const log = new AccessLog({ path: 'log', log: said, clock, files })
    files.room = 11
    for (let n = 1; n <= 3; n++) log.write({ n })
    await settled()
    t.equal(files.text, '{"n":1}\n{"n')
    t.match(log.fault, /ENOSPC/)
    for (let i = 0; i < 5; i++) {
      clock.advance(1000)
      await settled()
    }
    files.room = Number.POSITIVE_INFINITY
    clock.advance(1000)
    await settled()
    t.equal(files.text, '{"n":1}\n{"n":2}\n{"n":3}\n')
    t.strictSame([log.written, log.dropped, log.fault], [3, 0, undefined])
    t.strictSame(
      said.lines.map(({ level, text }) => [level, text]),
      [
        ['error', 'access log cannot be written'],
        ['info', 'access log is written again'],
      ],
    )
    await log.close()
  },
)

t.test('the rest of a line does not go into another file: the whole line does', async t => {
  const [files, clock] = [scriptedFiles(), new SimulatedClock()]
  const log = new AccessLog({ path: 'log', log: recordingLog(), clock, files })
  files.room = 11
  for (let n = 1; n <= 3; n++) log.write({ n })
  await settled()
  files.isMoved = true
  files.room = Number.POSITIVE_INFINITY
  clock.advance(1000)
  await settled()
  t.equal(files.text, '{"n":2}\n{"n":3}\n')
  t.strictSame([log.written, log.dropped], [3, 0])
  await log.close()
})

t.test('nobody waits for a reader that does not read: lines are bounded, dropped and counted', async t => {
  const [files, clock] = [scriptedFiles(), new SimulatedClock()]
  let release = (): void => {}
  files.held = new Promise<void>(resolve => {
    release = resolve
  })
  const log = new AccessLog({ path: '-', log: recordingLog(), clock, files })
  const text = 'x'.repeat(1000)
  for (let n = 0; n < 10_000; n++) log.write({ text })
  const { dropped } = log
  t.ok(dropped > 5500 && dropped < 6500, `${dropped} of 10,000 lines of 1 kB, with room for 4 MiB`)
  t.equal(log.written, 0)
  const closed = log.close()
  await settled()
  clock.advance(2000)
  await closed
  release()
  await settled()
  t.equal(log.written + log.dropped, 10_000)
})

t.test('lines that are held wait until they are released, or the log is closed', async t => {
  for (const isReleased of [true, false]) {
    const [files, clock] = [scriptedFiles(), new SimulatedClock()]
    const log = new AccessLog({ path: '-', log: recordingLog(), clock, files, isHeld: true })
    log.write({ n: 1 })
    clock.advance(5000)
    await settled()
    t.equal(files.text, '')
    if (isReleased) log.release()
    else await log.close()
    await settled()
    t.equal(files.text, '{"n":1}\n')
    await log.close()
  }
})

t.test('a place where nothing can be written is one clear error', async t => {
  const folder = t.testdir({ file: '' })
  execFileSync('mkfifo', [join(folder, 'pipe')])
  const cases: [string, RegExp][] = [
    [folder, /it is a directory; name a file in it/],
    [join(folder, 'pipe'), /it is no regular file; - is standard output/],
    [join(folder, 'none', 'log'), /ENOENT/],
    [join(folder, 'file', 'log'), /ENOTDIR/],
  ]
  for (const [path, words] of cases) {
    await t.rejects(prepareAccessLog(path), { code: 'HOMING_HTTP_ACCESS_LOG', message: words }, path)
  }
  for (const path of ['-', '/dev/stdout', '/dev/stderr']) await prepareAccessLog(path)
  // Reopening where that is not possible changes nothing.
  const path = join(folder, 'later', 'log')
  mkdirSync(join(folder, 'later'))
  const log = new AccessLog({ path, log: recordingLog(), clock: new SimulatedClock() })
  log.write({ n: 1 })
  while (log.written < 1) await settled()
  renameSync(join(folder, 'later'), join(folder, 'moved'))
  writeFileSync(join(folder, 'later'), '')
  await t.rejects(log.reopen(), { code: 'HOMING_HTTP_ACCESS_LOG' })
  log.write({ n: 2 })
  await log.close()
  t.strictSame(linesOf(join(folder, 'moved', 'log')), [{ n: 1 }, { n: 2 }])
})
