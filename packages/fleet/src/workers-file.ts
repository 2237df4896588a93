/**
 * Workers file: the URLs of workers in a file that other programs write while the router runs.
 *
 *   http://10.0.0.1:8001?events=5557      one URL a line, # begins a comment
 *   workers: [http://10.0.0.1:8001]       or JSON or short YAML: a list, or a map with `workers`
 *
 * The file is polled, not watched: polling works on network file systems, and when files or links are
 * replaced. A text counts after two looks in a row have found it, so a half-written file does not count.
 */

import { openName, readBoundedFile, readYaml } from '@homing/base'
import { WorkersFileError } from './errors.ts'
import { parseWorkerSpec } from './worker-url.ts'

const BYTES_MAX = 4 * 1024 * 1024
const WORKERS_MAX = 16_384

/**
 * The URLs in it, in their order. Throws WorkersFileError for the first fault, with its line where it has
 * one.
 */
export function parseWorkersFile(text: string, path: string): readonly string[] {
  const lines = text.split(/\r?\n/).map(line => line.replace(/(^|\s)#.*$/, '').trim())
  const first = lines.find(line => line !== '')
  if (first === undefined) {
    throw new WorkersFileError(path, 'it names no worker; to have none, write: workers: []')
  }
  const isYaml = /^(-|\[|\{|---|workers\s*:)/.test(first)
  const urls = isYaml
    ? yamlUrls(text, path)
    : lines.flatMap((url, at) => (url === '' ? [] : [{ url, line: at + 1 }]))
  if (urls.length > WORKERS_MAX) {
    throw new WorkersFileError(path, `it names ${urls.length} workers; the most is ${WORKERS_MAX}`)
  }
  const seen = new Set<string>()
  for (const [position, { url, line }] of urls.entries()) {
    const where = line === undefined ? `worker ${position + 1}` : `line ${line}`
    try {
      const { id } = parseWorkerSpec(url, position)
      if (seen.has(id)) throw new WorkersFileError(path, `${where}: ${id} is there twice`)
      seen.add(id)
    } catch (thrown) {
      if (thrown instanceof WorkersFileError) throw thrown
      throw new WorkersFileError(path, `${where}: ${(thrown as Error).message}`)
    }
  }
  return urls.map(({ url }) => url)
}

/** Rejects with WorkersFileError. */
export async function readWorkersFile(path: string): Promise<string> {
  return readBoundedFile(path, BYTES_MAX).catch((thrown: Error) => {
    throw new WorkersFileError(path, thrown.message)
  })
}

interface Located {
  readonly url: string
  readonly line: number | undefined
}

function yamlUrls(text: string, path: string): readonly Located[] {
  let root: unknown
  try {
    root = readYaml(text)
  } catch (thrown) {
    throw new WorkersFileError(path, (thrown as Error).message)
  }
  const list = isMap(root) ? root['workers'] : root
  if (isMap(root)) {
    const stranger = Object.keys(root).find(key => key !== 'workers')
    if (stranger !== undefined) {
      throw new WorkersFileError(path, `it has ${openName(stranger)}; it may have workers alone`)
    }
  }
  if (!Array.isArray(list)) throw new WorkersFileError(path, 'workers must be a list of URLs')
  return list.map((url: unknown, position) => {
    if (typeof url === 'string') return { url, line: undefined }
    throw new WorkersFileError(path, `worker ${position + 1} is no text, so no URL`)
  })
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Its text, or why it cannot be read. */
export type WorkersFileLook =
  | { readonly text: string; readonly fault?: undefined }
  | { readonly text?: undefined; readonly fault: string }

/** Changes in the file since the last text that counted. */
export interface WorkersFileChange {
  readonly added: readonly string[]
  readonly gone: readonly string[]
}

/** The texts of the last looks, and the URLs that count. */
export class WorkersFile {
  readonly path: string
  #urls: readonly string[]
  /** Text of the last look; undefined: it could not be read. */
  #text: string | undefined
  /** The last text that was judged. */
  #judged: string | undefined
  /** Why the file as it is does not count; undefined: it does. */
  fault: string | undefined

  constructor(path: string, urls: readonly string[]) {
    this.path = path
    this.#urls = urls
  }

  /** The URLs that count. */
  get urls(): readonly string[] {
    return this.#urls
  }

  /**
   * `found`: its text, or why it could not be read. Undefined: nothing has changed, or not yet. `isNewFault`:
   * say so.
   */
  looked(found: WorkersFileLook): WorkersFileChange | 'newFault' | undefined {
    const { text, fault } = found
    const isSteady = text === this.#text
    this.#text = text
    if (text === undefined) {
      // The same text is judged anew when it can be read again.
      this.#judged = undefined
      return this.#failed(fault)
    }
    if (!isSteady || text === this.#judged) return undefined
    this.#judged = text
    try {
      const urls = parseWorkersFile(text, this.path)
      this.fault = undefined
      const before = new Set(this.#urls)
      const now = new Set(urls)
      this.#urls = urls
      const added = urls.filter(url => !before.has(url))
      const gone = [...before].filter(url => !now.has(url))
      return added.length + gone.length === 0 ? undefined : { added, gone }
    } catch (thrown) {
      if (!(thrown instanceof WorkersFileError)) throw thrown
      return this.#failed(thrown.message)
    }
  }

  #failed(message: string): 'newFault' | undefined {
    const isNew = this.fault !== message
    this.fault = message
    return isNew ? 'newFault' : undefined
  }
}
