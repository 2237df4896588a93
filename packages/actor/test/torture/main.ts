/**
 * One torture run as a process of its own: `pnpm exec node packages/actor/test/torture/main.ts seed=1
 * threads=3 cycles=100 limitMs=10000`; one line of JSON.
 */

import { torture } from './driver.ts'

const given = new Map(process.argv.slice(2).map(word => word.split('=') as [string, string]))
const number = (name: string, otherwise: number): number => Number(given.get(name) ?? otherwise)

const result = await torture({
  seed: number('seed', 1),
  threads: number('threads', 3),
  cycles: number('cycles', 100),
  cyclesMin: number('cyclesMin', 0),
  limitMs: number('limitMs', 60_000),
  quietEvery: number('quietEvery', 20),
  faultsPerCycle: number('faults', 2),
  ...(given.has('progress') ? { onProgress: line => void process.stderr.write(`${line}\n`) } : {}),
})
process.stdout.write(`${JSON.stringify(result)}\n`)
