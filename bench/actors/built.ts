/**
 * The actor package as JavaScript, as its users get it from npm: its sources without their types, in a folder
 * of their own. What `pnpm build` makes differs in comments and white space.
 */

import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type * as actor from '@homing/actor'

export type BuiltActor = Pick<typeof actor, 'createActorSystem'>

/** Runs `use` with the package, imported from JavaScript. */
export async function withBuiltActor<T>(use: (actor: BuiltActor) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'homing-built-'))
  try {
    // In a process of its own: Node warns that its way to strip types is experimental.
    const script = fileURLToPath(new URL('./strip.ts', import.meta.url))
    execFileSync(process.execPath, ['--disable-warning=ExperimentalWarning', script, folder])
    const entry = join(folder, 'node_modules', '@homing', 'actor', 'src', 'index.js')
    return await use((await import(pathToFileURL(entry).href)) as BuiltActor)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
