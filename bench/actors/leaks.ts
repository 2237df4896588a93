/**
 * The leaks of leaks.ts as a process of its own: `pnpm exec node bench/actors/leaks.ts seed=1 cycles=1000
 * bursts=100`; one line of JSON.
 */

import { leaks } from '../../packages/actor/test/torture/leaks.ts'

const given = new Map(process.argv.slice(2).map(word => word.split('=') as [string, string]))
const number = (name: string, otherwise: number): number => Number(given.get(name) ?? otherwise)

const result = await leaks({
  seed: number('seed', 1),
  cycles: number('cycles', 1000),
  bursts: number('bursts', 100),
  shedForMs: number('shedForMs', 200),
  replaceMsMax: number('replaceMsMax', 3000),
  onProgress: line => void process.stderr.write(`${line}\n`),
})
process.stdout.write(`${JSON.stringify(result)}\n`)
process.exitCode = result.violations.length > 0 ? 1 : 0
