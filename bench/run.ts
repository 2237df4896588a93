/**
 * `pnpm bench`: lists the benches with the question each answers; `pnpm bench NAME …` runs one.
 *
 * A bench is a folder here with a main.ts; the word "Question" in its header comment is what is listed.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const directory = fileURLToPath(new URL('.', import.meta.url))
const names = readdirSync(directory, { withFileTypes: true })
  .filter(entry => entry.isDirectory() && existsSync(`${directory}${entry.name}/main.ts`))
  .map(entry => entry.name)
  .sort()

const [name, ...rest] = process.argv.slice(2).filter((word, i) => !(i === 0 && word === '--'))
if (name === undefined || name === '--help') {
  for (const each of names) process.stdout.write(`${each.padEnd(10)} ${question(each)}\n`)
  process.stdout.write(
    '\npnpm bench NAME [--smoke] [--runs N] [--vs PEER,…] [--check FILE] [--json] [out=FILE] [key=value …]\n',
  )
} else if (!names.includes(name)) {
  process.stderr.write(`bench: unknown bench ${name}; known: ${names.join(', ')}\n`)
  process.exitCode = 2
} else {
  const result = spawnSync(process.execPath, [`${directory}${name}/main.ts`, ...rest], { stdio: 'inherit' })
  process.exitCode = result.status ?? 1
}

function question(each: string): string {
  const source = readFileSync(`${directory}${each}/main.ts`, 'utf8')
  return /^ \* Question\s+(.*)$/m.exec(source)?.[1] ?? '(its header states no question)'
}
