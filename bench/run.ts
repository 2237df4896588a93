/**
 * `pnpm bench`: lists the benches with the question of each; `pnpm bench NAME …` runs one; --help prints its
 * parameters.
 *
 * A bench is a folder here with a main.ts; the list shows the text after "Question" in its header comment.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { questionOf, readHeader } from './bench-header.ts'

const directory = fileURLToPath(new URL('.', import.meta.url))
const names = readdirSync(directory, { withFileTypes: true })
  .filter(entry => entry.isDirectory() && existsSync(`${directory}${entry.name}/main.ts`))
  .map(entry => entry.name)
  .sort()

const [name, ...rest] = process.argv.slice(2).filter((word, i) => !(i === 0 && word === '--'))
if (name === undefined || name === '--help' || name === '-h') {
  for (const each of names) {
    const question = questionOf(readHeader(mainOf(each))) ?? '(its header states no question)'
    process.stdout.write(`${each.padEnd(10)} ${question}\n`)
  }
  process.stdout.write(
    '\npnpm bench NAME [--smoke] [--runs N | --pairs N] [--vs PEER,…] [--check FILE] [--json] [out=FILE] [key=value …]\n' +
      'pnpm bench NAME --help says what a bench does, and shows its parameters with their defaults.\n',
  )
} else if (!names.includes(name)) {
  process.stderr.write(`bench: unknown bench ${name}; known: ${names.join(', ')}\n`)
  process.exitCode = 2
} else {
  const result = spawnSync(process.execPath, [mainOf(name), ...rest], { stdio: 'inherit' })
  process.exitCode = result.status ?? 1
}

function mainOf(each: string): string {
  return `${directory}${each}/main.ts`
}
