/**
 * The workspaces of this repository: their folders, as pnpm-workspace.yaml names them, and their manifests.
 */

import { existsSync, globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'

export interface Manifest {
  readonly name: string
  readonly version: string
  readonly private?: boolean
  readonly bin?: Readonly<Record<string, string>>
  readonly files?: readonly string[]
  readonly exports?: Readonly<Record<string, string>>
  readonly publishConfig?: {
    readonly bin?: Readonly<Record<string, string>>
    readonly exports?: Readonly<Record<string, { readonly types: string; readonly default: string }>>
    readonly peerDependencies?: Readonly<Record<string, string>>
    readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional: boolean }>>
  }
  readonly dependencies?: Readonly<Record<string, string>>
}

export interface Workspace {
  /** From the root of the repository, with '/'. */
  readonly folder: string
  readonly manifest: Manifest
}

/** All workspaces below `root`, sorted by folder; the root itself is none. */
export function readWorkspaces(root: string): readonly Workspace[] {
  const text = readFileSync(join(root, 'pnpm-workspace.yaml'), 'utf8')
  const { packages } = parse(text) as { readonly packages: readonly string[] }
  return globSync(packages as string[], { cwd: root })
    .map(folder => folder.replaceAll('\\', '/'))
    .filter(folder => existsSync(join(root, folder, 'package.json')))
    .sort()
    .map(folder => ({
      folder,
      manifest: JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8')) as Manifest,
    }))
}

/** `workspace` first, and every workspace that it needs at run time, directly or by others. */
export function withNeeded(workspace: Workspace, all: readonly Workspace[]): readonly Workspace[] {
  const byName = new Map(all.map(each => [each.manifest.name, each]))
  const found = new Set([workspace])
  for (const { manifest } of found) {
    for (const name of Object.keys(manifest.dependencies ?? {})) {
      const needed = byName.get(name)
      if (needed !== undefined) found.add(needed)
    }
  }
  return [...found]
}

/** Folders `src` of a workspace: its own, or one for each of its folders. */
export function sourceFolders(root: string, { folder }: Workspace): readonly string[] {
  return globSync([`${folder}/src`, `${folder}/*/src`], {
    cwd: root,
    exclude: path => /(^|\/)(node_modules|dist)$/.test(path),
  })
    .map(path => path.replaceAll('\\', '/'))
    .sort()
}
