/** Packages whose API pages the site has: those that a program asks for by name. */

export interface ApiPackage {
  readonly title: string
  readonly folder: string
  /** Of the repository. */
  readonly entryPoints: readonly string[]
}

const of = (name: string, folder: string, ...more: string[]): ApiPackage => ({
  title: name,
  folder,
  entryPoints: ['index', ...more].map(file => `packages/${folder}/src/${file}.ts`),
})

export const API_PACKAGES: readonly ApiPackage[] = [
  of('homing', 'homing'),
  of('@homing/actor', 'actor', 'testing', 'simulation/index'),
  of('@homing/publisher', 'publisher'),
  of('@homing/worker', 'worker'),
  of('@homing/index', 'index'),
  of('@homing/tokenization', 'tokenization'),
]
