/** The line writer: on files of the disk with real writes, and on a disk in memory that fails as it likes. */

import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { DiskLineFile, diskMoves, type LineFile, type LineFiles, LineWriter } from '../src/index.ts'
import { Appender } from '../src/line-files.ts'

/** The files of a disk with `room` bytes left, the one that is under the path last. */
class ScriptedDisk implements LineFiles {
  room = Number.POSITIVE_INFINITY
  isRefusing = false
  readonly texts: string[] = []
  #isGone = true
  readonly #canCut: boolean

  constructor(canCut: boolean) {
    this.#canCut = canCut
  }

  /** The file is moved away. */
  move(): void {
    this.#isGone = true
  }

  async open(): Promise<LineFile> {
    if (this.isRefusing) throw new Error('EACCES: permission denied, open')
    if (this.#isGone) this.texts.push('')
    this.#isGone = false
    const at = this.texts.length - 1
    if (!/(^|\n)$/.test(this.texts[at]!))
      this.texts[at] = this.#canCut ? this.texts[at]!.replace(/.*$/, '') : `${this.texts[at]}\n`
    return {
      bytes: this.texts[at]!.length,
      append: async bytes => {
        if (this.room === 0) throw new Error('ENOSPC: no space left on device, write')
        const part = bytes.subarray(0, this.room)
        this.room -= part.length
        this.texts[at] += Buffer.from(part).toString()
        return part.length
      },
      cut: this.#canCut
        ? async bytes => {
            this.texts[at] = this.texts[at]!.slice(0, bytes)
          }
        : undefined,
      isAt: async () => !this.#isGone && at === this.texts.length - 1,
      close: async () => {},
    }
  }

  async rename(): Promise<void> {
    this.move()
  }

  async remove(): Promise<void> {
    this.move()
  }
}

type Step =
  | { readonly kind: 'add'; readonly length: number }
  | { readonly kind: 'room'; readonly bytes: number }
  | { readonly kind: 'refuse' | 'allow' | 'move' | 'look' | 'flush' | 'reopen' }

const steps = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({ kind: fc.constant('add' as const), length: fc.integer({ min: 1, max: 40 }) }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('room' as const), bytes: fc.nat(60) }) },
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constantFrom('refuse', 'allow', 'move', 'look', 'look', 'flush', 'flush', 'reopen'),
      }),
    },
  ) as fc.Arbitrary<Step>,
  { maxLength: 60 },
)

/** The file is moved away and cannot be opened again, while nothing waits to be written. */
const brokenWithoutLines: Step[] = [
  { kind: 'add', length: 1 },
  { kind: 'refuse' },
  { kind: 'move' },
  { kind: 'flush' },
  { kind: 'look' },
  { kind: 'flush' },
]

t.test('each line is in one file, whole and in order, or counted as dropped, whatever fails', async t => {
  const agree = fc.asyncProperty(steps, fc.boolean(), fc.boolean(), async (steps, canCut, hasHeader) => {
    const disk = new ScriptedDisk(canCut)
    let faults = 0
    const writer = new LineWriter({
      files: disk,
      path: 'log',
      waitingBytesMax: 150,
      ...(canCut ? { fileBytesMax: 100, filesMax: 3 } : {}),
      ...(hasHeader && canCut ? { header: () => 'header\n' } : {}),
      broke: () => faults++,
      mended: () => faults--,
    })
    const taken: string[] = []
    let given = 0
    for (const step of steps) {
      if (step.kind === 'add') {
        const line = `${given++}:${'x'.repeat(step.length)}\n`
        if (writer.add(line)) taken.push(line)
      } else if (step.kind === 'room') disk.room = step.bytes
      else if (step.kind === 'refuse') disk.isRefusing = true
      else if (step.kind === 'allow') disk.isRefusing = false
      else if (step.kind === 'move') disk.move()
      else if (step.kind === 'look') writer.look()
      else if (step.kind === 'flush') await writer.flush()
      // Refused where opening is, which changes nothing.
      else await writer.reopen().catch(() => {})
      assert.ok(writer.status.waitingBytes <= 150)
      assert.ok(faults === 0 || faults === 1, 'said once until it is mended')
    }
    disk.room = Number.POSITIVE_INFINITY
    disk.isRefusing = false
    // Closing tries a broken file again for lines that wait, and for nothing else.
    if (writer.status.waitingBytes === 0) {
      writer.look()
      await writer.flush()
    }
    await writer.close()

    const { written, dropped, waitingBytes, fault } = writer.status
    assert.deepEqual(
      { written, dropped, waitingBytes, fault, faults },
      {
        written: taken.length,
        dropped: given - taken.length,
        waitingBytes: 0,
        fault: undefined,
        faults: 0,
      },
    )
    const lines = disk.texts.flatMap(text => {
      const pieces = text.match(/[^\n]*\n|[^\n]+$/g) ?? []
      if (hasHeader && canCut && text !== '') assert.equal(pieces[0], 'header\n')
      const whole = pieces.filter(piece => taken.includes(piece))
      // Where nothing can be cut off, half a line may stay, ended or at the end of a file that was moved
      // away.
      const others = pieces.filter(piece => !taken.includes(piece) && piece !== 'header\n')
      if (canCut) assert.deepEqual(others, [])
      for (const half of others)
        assert.ok(
          taken.some(line => line.startsWith(half.trimEnd())),
          half,
        )
      return whole
    })
    assert.deepEqual(lines, taken)
    if (canCut)
      for (const text of disk.texts)
        assert.ok(text.length <= 100 + 'header\n'.length + 50, `${text.length} bytes`)
  })
  await t.resolves(
    fc.assert(agree, {
      numRuns: Number(process.env['HOMING_TEST_RUNS'] ?? 400),
      examples: [[brokenWithoutLines, false, false]],
    }),
  )
})

const openOwn = (path: string) => DiskLineFile.open(path, { mode: 0o600, isOwn: true }, async () => {})

t.test('a batch of megabytes is appended as a whole, and its end may be cut off', async t => {
  const path = join(t.testdir(), 'log')
  const file = await openOwn(path)
  const bytes = Buffer.alloc(3 * 2 ** 20, 'lines\n')
  t.equal(await file.append(bytes), bytes.length)
  t.equal(await file.append(Buffer.from('ä\nhalf')), 7)
  t.equal(await file.isAt(path), true)
  await file.cut?.(bytes.length + 3)
  t.equal(await file.append(Buffer.from('after\n')), 6)
  await file.close()
  t.equal(readFileSync(path).equals(Buffer.concat([bytes, Buffer.from('ä\nafter\n')])), true)
})

t.test('a device without room rejects, and so it does again', { skip: !existsSync('/dev/full') }, async t => {
  await t.rejects(openOwn('/dev/full'), /no regular file/)
  const handle = await open('/dev/full', 'a')
  t.teardown(() => handle.close())
  const appender = new Appender(handle.fd)
  for (let i = 0; i < 2; i++) await t.rejects(appender.append(Buffer.from('x\n')), { code: 'ENOSPC' })
})

t.test('a failed write leaves nothing behind that a later one would bring along', async t => {
  const path = join(t.testdir(), 'log')
  const files: LineFiles = { ...diskMoves, open: openOwn }
  const faults: string[] = []
  const writer = new LineWriter({
    files: {
      ...files,
      async open(path) {
        const file = await files.open(path)
        // The disk takes half of the first write, and no more for a while.
        let room = faults.length === 0 ? 5 : Number.POSITIVE_INFINITY
        return {
          ...{
            bytes: file.bytes,
            cut: file.cut,
            isAt: (at: string) => file.isAt(at),
            close: () => file.close(),
          },
          append(bytes) {
            if (room === 0) return Promise.reject(new Error('ENOSPC'))
            const part = bytes.subarray(0, room)
            room -= part.length
            return file.append(part)
          },
        }
      },
    },
    path,
    waitingBytesMax: 1000,
    broke: reason => faults.push(reason),
    mended: () => {},
  })
  writer.add('1\n')
  writer.add('two\n')
  t.equal(await writer.flush(), false)
  t.equal(readFileSync(path, 'utf8'), '1\n', 'the half line is cut off')
  t.strictSame(faults, ['ENOSPC'])
  await writer.close()
  t.equal(readFileSync(path, 'utf8'), '1\ntwo\n')
})
