/**
 * Writes BATCHES of lines to a pipe that is full at first, where no timer ever fires: for
 * stream-line-file.test.ts.
 */

import process from 'node:process'
import { StreamLineFile } from '../src/line-files.ts'

/** More than a pipe holds, by far. */
const BATCHES = 64
const BATCH = Buffer.alloc(32 * 1024, `${'x'.repeat(127)}\n`)

globalThis.setTimeout = (() => ({ unref() {} })) as unknown as typeof setTimeout

const file = new StreamLineFile(1)
process.stderr.write('begun\n')
let bytes = 0
for (let i = 0; i < BATCHES; i++) bytes += await file.append(BATCH)
process.stderr.write(`wrote ${bytes}\n`)
