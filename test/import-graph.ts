/** Import graph: which files, folders and packages import which, and where they go round in a circle. */

import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { folderOf, importsOf, packageOf, type Repository, type SourceFile, sources } from './repository.ts'

type Graph = ReadonlyMap<string, readonly string[]>

/** The files that each file imports, those of types included. */
export function importGraph({ files, manifests }: Repository): Graph {
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
export function circlesIn(graph: Graph): readonly (readonly string[])[] {
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
export function folderGraph(imports: Graph): Graph {
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
export function importsOfLaterFolders({ root, files, manifests }: Repository): readonly string[] {
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
