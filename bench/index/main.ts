/**
 * Question   How fast and how small is the prefix index?
 * Workload   corpus=idx-small (default), idx-main, idx-16, idx-wide, idx-ballast, synthetic: files of lookups
 *            and events of a fleet that serves a trace (corpora.ts), made once. idx-small: the conversation
 *            trace on 64 workers, 12,031 lookups, 2.1 M blocks stored, 1.7 M removed.
 * Loops      loops=A,C,… A one thread, back to back · B paced, how far it keeps up · C overload of one writer
 *            thread, rate with the drain · D paced at half of what B finds, latencies · E single operations
 *            on indexes of three sizes · F memory · S one, two and four shards · churn a sliding window for
 *            `minutes`.
 * Checked    every 1,000th lookup of A, and what every worker holds at the end of A, C and D, against a
 *            replay of the file into plain sets; `scoreSum`, the sum of all scores on the full index, is the
 *            same at every peer.
 * Read it    block ops count every hash of a lookup, a stored or a removed event. A lookup includes its timer
 *            (about 60 ns). Compare runs of one machine in the same hour only; each part says what cores it
 *            got. `--vs dynamo`: the Rust crate dynamo-kv-router on the same file; A: `mixed`, `stored`,
 *            `removed` are its RadixTree, all else its compressed concurrent tree. `--vs naive`: maps of
 *            strings.
 * Compare    out=FILE keeps a run; --check FILE fails when lookups or events cost much more CPU time than
 *            then.
 */

import { runBench } from '../harness.ts'
import { dynamoParts, dynamoVersion, runDynamo } from './dynamo.ts'
import { naiveLoop } from './naive-loop.ts'
import { parts, passGate, runPart } from './parts.ts'
import { checks, pins, targets } from './targets.ts'

await runBench(
  {
    name: 'index',
    question: 'How fast and how small is the prefix index?',
    parts,
    targets,
    pins,
    checks,
    peers: {
      naive: { run: naiveLoop, parts: ['A'] },
      dynamo: {
        run: part => passGate(part, () => runDynamo(part)),
        parts: dynamoParts,
        version: dynamoVersion,
      },
    },
  },
  runPart,
)
