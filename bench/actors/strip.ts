/**
 * Writes the actor package as JavaScript into a folder, with the packages that it needs: their sources
 * without types.
 *
 *   pnpm exec node bench/actors/strip.ts FOLDER        FOLDER/node_modules/@homing/actor, …
 */

import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'

interface Manifest {
  readonly name: string
  readonly exports: Readonly<Record<string, string>>
  readonly dependencies?: Readonly<Record<string, string>>
}

const packages = fileURLToPath(new URL('../../packages', import.meta.url))
build('actor', join(process.argv[2]!, 'node_modules'), new Set())

/** Puts a package of the workspace and all that it needs into `modules`. */
function build(folder: string, modules: string, done: Set<string>): void {
  if (done.has(folder)) return
  done.add(folder)
  const source = join(packages, folder)
  const manifest = JSON.parse(readFileSync(join(source, 'package.json'), 'utf8')) as Manifest
  const target = join(modules, ...manifest.name.split('/'))
  const exports = Object.entries(manifest.exports).map(([name, path]) => [name, asJs(path)])
  mkdirSync(target, { recursive: true })
  writeFileSync(
    join(target, 'package.json'),
    JSON.stringify({ name: manifest.name, type: 'module', exports: Object.fromEntries(exports) }),
  )
  for (const path of readdirSync(join(source, 'src'), { recursive: true, encoding: 'utf8' })) {
    if (!path.endsWith('.ts')) continue
    const script = stripTypeScriptTypes(readFileSync(join(source, 'src', path), 'utf8'))
    const file = join(target, 'src', asJs(path))
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, script.replaceAll(/(?<=(?:from|import) '\.[^']*)\.ts(?=')/g, '.js'))
  }
  for (const name of Object.keys(manifest.dependencies ?? {})) {
    if (name.startsWith('@homing/')) build(name.slice('@homing/'.length), modules, done)
    else symlinkSync(join(source, 'node_modules', name), join(modules, name), 'junction')
  }
}

function asJs(path: string): string {
  return path.replace(/\.ts$/, '.js')
}
