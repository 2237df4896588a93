/**
 * Question   What does the actor runtime cost, beside the raw means of Node, and beside other libraries?
 * Workload   one row for each promise on speed: tell and ask on one thread and between two, spawn and stop,
 *            memory of an idle actor, a fixed rate, rest, start, death and hang of threads, restarts without
 *            end, simulation, and what must never be lost. `rows=a,b` chooses rows.
 * Loop       closed, but for openLoop (asks at a fixed rate, in bursts of a millisecond). A message counts
 *            when its behavior has run: every row drains before it stops the clock. Ours and the raw means
 *            (raw-*.ts: a bare loop, a ring in shared memory with both sides spinning, a MessagePort,
 *            workers) take turns on the same work in one process. A row of a run is a process of its own.
 * Checked    in every row: each message arrives once and in order of its sender, each answer is the right
 *            one, nothing is left over. A violation fails the bench, but for those that rows count (night,
 *            kills, modelCheck; with --smoke these do, too). Time never does: floors and goals are printed as
 *            met or missed.
 * Gate       rows of two threads count only where two busy threads get CORES_MIN cores, before and after
 *            (gate.ts); else a run of that row waits, is made again, or is skipped by name. With --smoke the
 *            cores are only said.
 * Read it    medians over the runs, range in brackets. `× raw` is the ratio within a run. `…Cpu` is the CPU
 *            time that a message took in all threads of the process, `…CpuBusier` in the busier of the two:
 *            steadier than the clock on a shared machine, and its inverse the rate that two free cores allow.
 *            One machine only. `--vs nact,comedy,comlink,piscina,xstate`: the same loads on each (rivals/).
 * Elsewhere  10,000 deaths: `pnpm bench soak`; what actors carry (KV events, decisions): the other benches.
 */

import { loadavg } from 'node:os'
import { isSmoke, type Measures, runBench, Skip, say, usage } from '../harness.ts'
import { checkRows } from './check-rows.ts'
import { CORES_MIN, effectiveCores } from './cores.ts'
import { crossAskRows } from './cross-ask-rows.ts'
import { crossTellRows } from './cross-tell-rows.ts'
import { failoverRows } from './failover-rows.ts'
import { gated, isFirstProcess } from './gate.ts'
import { localRows } from './local-rows.ts'
import { restRows } from './rest-rows.ts'
import { rivals } from './rivals/index.ts'
import type { Row } from './row.ts'
import { simulationRows } from './simulation-rows.ts'
import { sizeRows } from './size-rows.ts'
import { rowsWanted } from './sizes.ts'
import { spawnRows } from './spawn-rows.ts'
import { stormRows } from './storm-rows.ts'

/** What the machine gave us; not a figure of ours. */
const machine: Row = {
  name: 'machine',
  threads: 1,
  targets: {},
  run: async () => ({
    effectiveCores: { value: await effectiveCores(), unit: 'cores' },
    loadAverage: { value: loadavg()[0]!, unit: 'threads that want to run' },
  }),
}

const allRows: readonly Row[] = [
  machine,
  ...localRows,
  ...spawnRows,
  ...crossTellRows,
  ...crossAskRows,
  ...sizeRows,
  ...restRows,
  ...failoverRows,
  ...stormRows,
  ...simulationRows,
  ...checkRows,
]

const wanted = rowsWanted === 'all' ? allRows.map(row => row.name) : rowsWanted.split(',')
for (const name of wanted) {
  if (!allRows.some(row => row.name === name)) {
    usage(`unknown row ${name}; known: ${allRows.map(row => row.name).join(', ')}`)
  }
}
const rows = allRows.filter(row => wanted.includes(row.name))

/** What has a floor and a goal as well, and is not measured here. */
const ELSEWHERE: readonly string[] = [
  'KV events decoded and indexed, route decision: other benches (pnpm bench lists them)',
  'nothing lost beyond the window over 10,000 deaths: pnpm bench soak (floor and goal 0)',
  'asks one after the other while both threads poll: there is no such mode (floor 8 µs; goal 4 µs)',
]

/** Runs one of the rows by `work`; rows of two threads pass the gate. */
async function runGated(part: string, work: (part: string) => Promise<Measures>): Promise<Measures | Skip> {
  const { threads, targets } = rows.find(row => row.name === part)!
  if (isSmoke || threads === 1) return work(part)
  const outcome = await gated(part, () => work(part))
  if ('value' in outcome) return outcome.value
  const names = Object.keys(targets).join(', ')
  return new Skip(
    `two busy threads get ${outcome.cores.toFixed(2)} cores, not ${CORES_MIN}: ${names} cannot be compared`,
  )
}

if (isFirstProcess && rowsWanted === 'all') for (const line of ELSEWHERE) say(`not here: ${line}`)
if (isSmoke) {
  const cores = await effectiveCores()
  const verdict =
    cores < CORES_MIN ? `below ${CORES_MIN}: not comparable, and with --smoke not meant to be` : 'ok'
  say(`two busy threads get ${cores.toFixed(2)} cores (${verdict}); load average ${loadavg()[0]!.toFixed(2)}`)
}

await runBench(
  {
    name: 'actors',
    question: 'What does the actor runtime cost, beside the raw means of Node, and beside other libraries?',
    parts: rows.map(row => row.name),
    targets: Object.assign({}, ...rows.map(row => row.targets)),
    peers: Object.fromEntries(
      Object.entries(rivals).map(([name, rival]) => [
        name,
        {
          parts: Object.keys(rival.rows),
          version: rival.version,
          run: part => runGated(part, () => rival.rows[part]!()),
        },
      ]),
    ),
  },
  part => runGated(part, () => rows.find(row => row.name === part)!.run()),
)
