/**
 * Page files: what a browser loads, read once and kept compressed.
 *
 *   browser/page.html  page.css  *.ts      ─▶ the page, its style, its modules (only the types are stripped)
 *   preact             from npm            ─▶ vendor/preact.mjs, vendor/hooks.mjs, named in an import map
 *
 * All URLs in them are relative, so that the page works below any path. Its policy allows scripts, styles and
 * requests of its own origin alone, and one inline script: the import map, by its hash.
 */

import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import * as nodeModule from 'node:module'
import { gzipSync } from 'node:zlib'

export interface PageFile {
  readonly type: string
  /** Its text, in UTF-8, and the same compressed by gzip. */
  readonly bytes: Uint8Array
  readonly gzip: Uint8Array
  /** Of the text, in quotes as in the header. */
  readonly etag: string
}

/** The folder is beside this file's folder, in the sources and in the build. */
const BROWSER = new URL('../browser/', import.meta.url)
const VENDOR: Readonly<Record<string, string>> = {
  preact: 'vendor/preact.mjs',
  'preact/hooks': 'vendor/hooks.mjs',
}
const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  ts: 'text/javascript; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
}
const IMPORT_MAP = '<!-- import map -->'
const HTML = 'page.html'

export class PageFiles {
  readonly #files: ReadonlyMap<string, PageFile>
  /** Of the header `content-security-policy`. */
  readonly policy: string

  private constructor(files: ReadonlyMap<string, PageFile>, policy: string) {
    this.#files = files
    this.policy = policy
  }

  /** Reads all files; between two of them others may run. Rejects where one is missing. */
  static async read(): Promise<PageFiles> {
    const imports = Object.fromEntries(
      Object.entries(VENDOR).map(([specifier, path]) => [specifier, `./page/${path}`]),
    )
    const map = JSON.stringify({ imports })
    const files = new Map<string, PageFile>()
    for (const name of await readdir(BROWSER)) {
      if (TYPES[extensionOf(name)] === undefined) continue
      const text = await readFile(new URL(name, BROWSER), 'utf8')
      files.set(name, fileOf(name, textOf(name, text, map)))
    }
    for (const [specifier, path] of Object.entries(VENDOR)) {
      const text = await readFile(new URL(import.meta.resolve(specifier)), 'utf8')
      // There is no map to load.
      files.set(path, fileOf(path, text.replace(/^\/\/# sourceMappingURL=.*$/m, '')))
    }
    const hash = createHash('sha256').update(map).digest('base64')
    return new PageFiles(files, policyOf(hash))
  }

  /** `path` below `page/`; undefined: there is none. */
  get(path: string): PageFile | undefined {
    return path === HTML ? undefined : this.#files.get(path)
  }

  get html(): PageFile {
    return this.#files.get(HTML)!
  }

  /** Paths of all files but the page itself. */
  get paths(): readonly string[] {
    return [...this.#files.keys()].filter(path => path !== HTML)
  }
}

function textOf(name: string, text: string, map: string): string {
  if (name === HTML) return text.replace(IMPORT_MAP, `<script type="importmap">${map}</script>`)
  return extensionOf(name) === 'ts' ? withoutTypes(text) : text
}

/**
 * Strips types without Node's warning, on standard error, that this function may change: operators of a
 * router cannot act on it.
 */
function withoutTypes(text: string): string {
  const { emitWarning } = process
  process.emitWarning = () => {}
  try {
    // Types leave blanks behind; their lines stay.
    return nodeModule.stripTypeScriptTypes(text).replace(/[ \t]+$/gm, '')
  } finally {
    process.emitWarning = emitWarning
  }
}

function fileOf(name: string, text: string): PageFile {
  const bytes = new TextEncoder().encode(text)
  const digest = createHash('sha256').update(bytes).digest('base64url').slice(0, 22)
  return {
    type: TYPES[extensionOf(name)]!,
    bytes,
    gzip: gzipSync(bytes, { level: 9 }),
    etag: `"${digest}"`,
  }
}

function policyOf(importMapHash: string): string {
  return [
    "default-src 'none'",
    `script-src 'self' 'sha256-${importMapHash}'`,
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ')
}

function extensionOf(name: string): string {
  return name.slice(name.lastIndexOf('.') + 1)
}
