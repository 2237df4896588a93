/**
 * Third-party notices: every package that an installed `homing` brings along, with version, licence and the
 * text of that licence.
 *
 * Read from node_modules, where the packages of the tarball's `dependencies` are installed, and what these
 * need.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

export interface ThirdParty {
  readonly name: string
  readonly version: string
  /** SPDX expression, as the package says. */
  readonly license: string
  /** Of all its files of licences and notices. Undefined: the package carries none. */
  readonly text: string | undefined
}

/** 'LICENSE', 'LICENSE-MIT.txt', 'LICENSE_MPL-2.0.txt', 'NOTICE.md'. */
const LEGAL_FILE = /^(?:licen[cs]e|copying|notice|unlicense)/i
const CODE_FILE = /\.(?:[cm]?[jt]s|json|map)$/i

interface Manifest {
  readonly name: string
  readonly version: string
  readonly license?: string | { readonly type?: string }
  readonly dependencies?: Readonly<Record<string, string>>
  readonly optionalDependencies?: Readonly<Record<string, string>>
}

/**
 * The packages that `homing`, installed in `folder`, needs, by name. Throws if one that it needs is not
 * there; an optional one may be missing, as on a machine that it is not for.
 */
export function thirdParties(folder: string): readonly ThirdParty[] {
  const found = new Map<string, ThirdParty>()
  const visit = (name: string, from: string, isOptional: boolean): void => {
    const path = installedAt(name, from)
    if (path === undefined) {
      if (isOptional) return
      throw new Error(`cannot list what homing brings along: ${name}, which ${from} needs, is not installed`)
    }
    const manifest = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')) as Manifest
    const key = `${manifest.name} ${manifest.version}`
    if (found.has(key)) return
    if (name !== 'homing') found.set(key, thirdParty(manifest, path))
    const { dependencies = {}, optionalDependencies = {} } = manifest
    for (const needed of Object.keys({ ...dependencies, ...optionalDependencies }))
      visit(needed, path, needed in optionalDependencies)
  }
  visit('homing', folder, false)
  return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** The page of notices. */
export function noticesOf(parties: readonly ThirdParty[]): string {
  const rows = parties.map(({ name, version, license }) => `| ${name} | ${version} | ${license} |`)
  const texts = parties.map(({ name, version, license, text }) => {
    const said = text ?? `The package carries no text of its licence (${license}).`
    return `## ${name} ${version}\n\n${'```'}text\n${said.trim()}\n${'```'}`
  })
  return [
    '# Third-party packages',
    'What `homing` needs besides its own code, as installed with it.',
    ['| package | version | licence |', '|---|---|---|', ...rows].join('\n'),
    ...texts,
    '',
  ].join('\n\n')
}

/** Where `name` is found from a file in `from`; undefined: nowhere. */
function installedAt(name: string, from: string): string | undefined {
  for (let folder = from; ; folder = dirname(folder)) {
    const path = join(folder, 'node_modules', name)
    if (existsSync(join(path, 'package.json'))) return path
    if (folder === dirname(folder)) return undefined
  }
}

function thirdParty({ name, version, license }: Manifest, path: string): ThirdParty {
  const files = readdirSync(path, { withFileTypes: true })
    .filter(entry => entry.isFile() && LEGAL_FILE.test(entry.name) && !CODE_FILE.test(entry.name))
    .map(entry => entry.name)
    .sort()
  const texts = files.map(file => readFileSync(join(path, file), 'utf8').trim())
  return {
    name,
    version,
    license: (typeof license === 'string' ? license : license?.type) ?? 'not said',
    text: files.length > 1 ? files.map((file, at) => `${file}:\n\n${texts[at]}`).join('\n\n') : texts.at(0),
  }
}
