/**
 * Merged modules: the JavaScript of a bundled dist/ in few files, because a thread that imports the router
 * from a thousand files spends most of its start on finding and opening them.
 *
 *   entry    a file that something names by its path, and which stays where it is: an export or a command of
 *            the package, a module that defines an actor, a program of a thread
 *   chunk    chunks/NAME-HASH.js: what several entries share. Each module is in one file only, so its state
 *            exists once
 *
 * A package is entered past its face (index.js), at the modules that define the names: else a thread that
 * needs one name of a package would run all of it.
 *
 * `import.meta` of a merged module still means its own path: code finds fixtures, manifests and threads
 * beside it. Other packages are imported as before. Declarations stay one for each module.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { build, type Plugin } from 'esbuild'

/** A module that passes its own URL on, to be imported by another thread. */
const DEFINES = /\b(defineActor\(|moduleUrl: )import\.meta\.url\b/
/** Modules that are imported by a URL: './x.js', `./x${extension}`. */
const NAMED =
  /\bimport\.meta\.resolve\((['"])(\.[^'"]+)\1\)|\bnew URL\(([`'"])([^`'"]+?)(?:\$\{extension\}|\.js)\3, import\.meta\.url\)/g
/** What the second of two classes of one name becomes in a chunk. Errors are called as their class is. */
const RENAMED = /^(?:var|let|const|class) (\w*Error)\d+\b(?: = class\b| extends\b)/gm
/** An import or export of names from another module. */
const NAMED_FROM = /^(import|export) \{([^}]*)\} from (['"])([^'"]+)\3;?$/gm
const OWN_PATH = 'homing-module:'
/** Read by browsers, as they are. */
const NOT_MERGED = /(^|\/)(browser|fixtures)\//

/** Merges the modules in `dist`. `published`: files in it that the manifest names. Returns faults. */
export async function mergeModules(dist: string, published: readonly string[]): Promise<readonly string[]> {
  const modules = readdirSync(dist, { recursive: true, encoding: 'utf8' }).filter(
    path => path.endsWith('.js') && !NOT_MERGED.test(path),
  )
  const entries = new Set(published)
  for (const path of modules) {
    const text = readFileSync(join(dist, path), 'utf8')
    if (DEFINES.test(text)) entries.add(path)
    for (const [, , resolved, , named] of text.matchAll(NAMED)) {
      const target = relative(dist, resolve(dist, dirname(path), resolved ?? `${named}.js`))
      if (modules.includes(target)) entries.add(target)
    }
  }
  const missing = [...entries].filter(path => !existsSync(join(dist, path)))
  if (missing.length > 0) return missing.map(path => `cannot merge modules: there is no ${path}`)
  const { outputFiles, errors } = await build({
    absWorkingDir: dist,
    entryPoints: [...entries],
    outbase: dist,
    outdir: dist,
    chunkNames: 'chunks/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'external',
    sourcemap: 'linked',
    sourcesContent: true,
    logLevel: 'silent',
    write: false,
    plugins: [ownPaths(dist, facesOf(dist, modules))],
  }).catch(thrown => ({
    outputFiles: [],
    errors: (thrown as { errors?: { text: string }[] }).errors ?? [thrown],
  }))
  if (errors.length > 0) return errors.map(error => `cannot merge modules: ${error.text ?? String(error)}`)
  const renamed = outputFiles.flatMap(({ text }) => [...text.matchAll(RENAMED)].map(([, name]) => name!))
  if (renamed.length > 0)
    return renamed.map(
      name => `cannot merge modules: two classes are called ${name}, and errors bear that name`,
    )
  for (const path of modules) for (const end of ['', '.map']) rmSync(join(dist, path + end), { force: true })
  mkdirSync(join(dist, 'chunks'), { recursive: true })
  for (const { path, text } of outputFiles) writeFileSync(path, withOwnPaths(dist, path, text))
  return []
}

/** By path of a face: where each of its names is defined, and under which name. */
type Faces = ReadonlyMap<string, ReadonlyMap<string, { readonly path: string; readonly name: string }>>

/** Modules that do nothing but re-export names, one by one. */
function facesOf(dist: string, modules: readonly string[]): Faces {
  const faces = new Map<string, Map<string, { path: string; name: string }>>()
  for (const module of modules) {
    if (!module.endsWith('index.js')) continue
    const text = readFileSync(join(dist, module), 'utf8')
    if (
      text
        .replace(NAMED_FROM, '')
        .replace(/^\/\/#.*$/gm, '')
        .trim() !== ''
    )
      continue
    const path = join(dist, module)
    const names = new Map<string, { path: string; name: string }>()
    for (const [, kind, list, , from] of text.matchAll(NAMED_FROM)) {
      if (kind === 'import') continue
      for (const [name, as] of namesIn(list!)) names.set(as, { path: resolve(dirname(path), from!), name })
    }
    faces.set(path, names)
  }
  return faces
}

/** Each name in the braces of an import or export, and what it is called behind them. */
function namesIn(list: string): readonly (readonly [name: string, as: string])[] {
  return list
    .split(',')
    .map(one => one.trim())
    .filter(one => one !== '')
    .map(one => {
      const [name, as = name] = one.split(/\s+as\s+/)
      return [name!, as!] as const
    })
}

/** The text, with names imported from where they are defined. Its lines stay. */
function pastFaces(text: string, folder: string, faces: Faces): string {
  return text.replace(NAMED_FROM, (statement, kind: string, list: string, _, from: string) => {
    if (!from.startsWith('.') || !faces.has(resolve(folder, from))) return statement
    const parts = namesIn(list).map(([name, as]) => {
      const found = definedAt(resolve(folder, from), name, faces)
      const path = relative(folder, found.path)
      const called = found.name === as ? as : `${found.name} as ${as}`
      return `${kind} { ${called} } from ${JSON.stringify(path.startsWith('.') ? path : `./${path}`)};`
    })
    return parts.join(' ') + '\n'.repeat(statement.split('\n').length - 1)
  })
}

/** Behind all faces. */
function definedAt(
  path: string,
  name: string,
  faces: Faces,
): { readonly path: string; readonly name: string } {
  const next = faces.get(path)?.get(name)
  return next === undefined ? { path, name } : definedAt(next.path, next.name, faces)
}

/**
 * Modules say what their own path is before they are merged, since afterwards none knows, and import from
 * where names are defined.
 */
function ownPaths(dist: string, faces: Faces): Plugin {
  return {
    name: 'own-paths',
    setup(pass) {
      pass.onLoad({ filter: /\.js$/ }, ({ path }) => {
        const text = pastFaces(readFileSync(path, 'utf8'), dirname(path), faces)
        if (!/\bimport\.meta\b/.test(text)) return { contents: text }
        const own = `new URL("${OWN_PATH}${relative(dist, path)}", import.meta.url)`
        const contents = text
          .replace(/\bimport\.meta\.resolve\((['"])(\.[^'"]+)\1\)/g, 'new URL("$2", ownUrl).href')
          .replace(/\bimport\.meta\.url\b/g, 'ownUrl')
          .replace(/\bimport\.meta\.filename\b/g, 'filePathOf(ownUrl)')
          .replace(/\bimport\.meta\.dirname\b/g, 'folderOf(filePathOf(ownUrl))')
        // On its first line: the lines of the source map stay.
        return {
          contents: `import { dirname as folderOf } from "node:path"; import { fileURLToPath as filePathOf } from "node:url"; const ownUrl = ${own}.href; ${contents}`,
        }
      })
    },
  }
}

function withOwnPaths(dist: string, path: string, text: string): string {
  const folder = dirname(path)
  return text.replace(new RegExp(`"${OWN_PATH}([^"]+)"`, 'g'), (_, own: string) =>
    JSON.stringify(`./${relative(folder, join(dist, own))}`),
  )
}
