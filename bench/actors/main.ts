/**
 * Question   What does the actor runtime cost, beside the raw means of Node, and beside other libraries?
 * Workload   one row for each promise on speed: tell and ask on one thread and between two, spawn and stop,
 *            memory of an idle actor, a fixed rate, rest, death and start of threads. `rows=a,b` names some.
 * Loop       closed, but for openLoop (asks at a fixed rate, in bursts of a millisecond). A message counts when
 *            its behavior has run: every row drains before it stops the clock. Beside each figure, in the same
 *            process, the same work with the raw means (raw.ts): a bare loop, a bare ring in shared memory with
 *            both sides spinning, a MessagePort, a worker. A row of a run is a process of its own.
 * Checked    in every row: each message arrives once and in order of its sender, each answer is the right one,
 *            nothing is left over. A violation fails the bench. Time never does: floors and goals are printed
 *            as met or missed.
 * Gate       rows of two threads are compared only where two busy threads get CORES_MIN cores, before and
 *            after; else the run of that row is made again or skipped by name. With --smoke this is only said.
 * Read it    medians over the runs, range in brackets. `× raw` is the ratio within a run. One machine only.
 *            `--vs nact,comedy,comlink,piscina,xstate`: the same loads on each (rivals.ts).
 */

import { loadavg } from 'node:os'
import { isSmoke, type Measures, runBench, Skip, say, usage } from '../harness.ts'
import { CORES_MIN, CORES_MIN_AFTER, effectiveCores } from './cores.ts'
import { crossRows } from './cross-rows.ts'
import { pause } from './loads.ts'
import { localRows } from './local-rows.ts'
import { rivals } from './rivals.ts'
import type { Row } from './row.ts'
import { rowsWanted } from './sizes.ts'
import { threadRows } from './thread-rows.ts'

/** Tries to find two cores, and then to keep them for a run. */
const GATE_TRIES = 20
const GATE_PAUSE_MS = 500
const GATED_RUNS_MAX = 3

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

const allRows: readonly Row[] = [machine, ...localRows, ...crossRows, ...threadRows]

const wanted = rowsWanted === 'all' ? allRows.map(row => row.name) : rowsWanted.split(',')
for (const name of wanted) {
  if (!allRows.some(row => row.name === name)) {
    usage(`unknown row ${name}; known: ${allRows.map(row => row.name).join(', ')}`)
  }
}
const rows = allRows.filter(row => wanted.includes(row.name))

/** Runs one of the rows by `work`; rows of two threads pass the gate first. */
async function runGated(part: string, work: (part: string) => Promise<Measures>): Promise<Measures | Skip> {
  if (isSmoke || rows.find(row => row.name === part)!.threads === 1) return work(part)
  let cores = 0
  for (let run = 0; run < GATED_RUNS_MAX; run++) {
    for (let attempt = 0; attempt < GATE_TRIES; attempt++) {
      cores = await effectiveCores()
      if (cores >= CORES_MIN) break
      await pause(GATE_PAUSE_MS)
    }
    if (cores < CORES_MIN) break
    const measures = await work(part)
    cores = await effectiveCores()
    if (cores >= CORES_MIN_AFTER) return measures
  }
  return new Skip(`two busy threads get ${cores.toFixed(2)} cores, not ${CORES_MIN}: not comparable`)
}

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
