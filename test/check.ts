/**
 * `pnpm check`: types, lint and format, tidiness. Each check is named with its time; exit code 1 when one
 * fails.
 */

import { spawn } from 'node:child_process'
import { join } from 'node:path'
import process from 'node:process'

const ROOT = join(import.meta.dirname, '..')
const LIMIT_MS = 180_000

interface Check {
  readonly name: string
  readonly command: string
  readonly args: readonly string[]
}

const checks: readonly Check[] = [
  { name: 'types', command: binary('tsc'), args: ['-p', '.'] },
  { name: 'types of the page', command: binary('tsc'), args: ['-p', 'packages/page/browser'] },
  { name: 'lint and format', command: binary('biome'), args: ['check', '--error-on-warnings', '.'] },
  {
    name: 'tidiness',
    command: process.execPath,
    args: ['test/run.ts', 'test/tidiness.test.ts', 'test/configuration.test.ts'],
  },
]

let failedCount = 0
for (const check of checks) {
  const startedAt = performance.now()
  const { isOk, output } = await run(check)
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(2).padStart(6)
  console.log(`${isOk ? 'ok  ' : 'FAIL'} ${seconds} s  ${check.name}`)
  if (!isOk) {
    failedCount++
    console.log(`\n${output.trimEnd()}\n`)
  }
}
console.log(`${checks.length - failedCount} passed, ${failedCount} failed`)
process.exitCode = failedCount > 0 ? 1 : 0

function run({ command, args }: Check): Promise<{ readonly isOk: boolean; readonly output: string }> {
  return new Promise(resolve => {
    const child = spawn(command, args, { cwd: ROOT, timeout: LIMIT_MS, stdio: ['ignore', 'pipe', 'pipe'] })
    const output: Buffer[] = []
    child.stdout.on('data', (bytes: Buffer) => output.push(bytes))
    child.stderr.on('data', (bytes: Buffer) => output.push(bytes))
    child.on('error', error => resolve({ isOk: false, output: `cannot run ${command}: ${error.message}` }))
    child.on('close', exitCode =>
      resolve({ isOk: exitCode === 0, output: Buffer.concat(output).toString('utf8') }),
    )
  })
}

function binary(name: string): string {
  return join(ROOT, 'node_modules', '.bin', name)
}
