/**
 * Merged modules: the JavaScript of a bundled dist/ in few files, because a thread that imports the router
 * from a thousand files spends most of its start on finding and opening them.
 *
 *   entry    a file that something names by its path, and which stays where it is: an export or a command of
 *            the package, a module that defines an actor, a program of a thread
 *   chunk    chunks/NAME-HASH.js: what several entries share. Each module is in one file only, so its state
 *            exists once
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
    plugins: [ownPaths(dist)],
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

/** Modules say what their own path is before they are merged, since afterwards none knows. */
function ownPaths(dist: string): Plugin {
  return {
    name: 'own-paths',
    setup(pass) {
      pass.onLoad({ filter: /\.js$/ }, ({ path }) => {
        const text = readFileSync(path, 'utf8')
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
