/**
 * The sidecar behind vLLM's own block pool and publisher, driven by a script of the recordings' folder,
 * without a model. Needs HOMING_REAL_ENGINES and a python3 that has vLLM.
 */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { systemClock, systemRandom } from '@homing/base'
import { decodeKvBatch, snapshotRequestFrames } from '@homing/protocol'
import { systemTransport } from '@homing/transport'
import t from 'tap'
import { PUBLISHER_DEFAULTS, Sidecar } from '../src/index.ts'
import { replay, snapshot } from './asking.ts'
import { NaiveCache } from './naive-cache.ts'

const ORACLE = fileURLToPath(new URL('../../../../shared/engines/pool_oracle.py', import.meta.url))
const FIND_VLLM = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
const ANY = 'tcp://127.0.0.1:0'
const REQUESTS = 1000

const isThere =
  process.env['HOMING_REAL_ENGINES'] !== undefined &&
  existsSync(ORACLE) &&
  spawnSync('python3', ['-c', FIND_VLLM]).status === 0
const skip = isThere ? false : 'no live engine: vLLM is not asked for, or not installed'

for (const window of [0, 64]) {
  const title = `a snapshot is what vLLM's own events tell${window > 0 ? ', of a hybrid model' : ''}`
  t.test(title, { skip, timeout: 600_000 }, async t => {
    const [events, replayed] = [25_857 + window, 26_857 + window]
    const child = spawn(
      'python3',
      [
        ORACLE,
        ...['--events', `${events}`, '--replay', `${replayed}`, '--blocks', '1000', '--window', `${window}`],
      ],
      { stdio: ['pipe', 'pipe', 'ignore'] },
    )
    const { messages, close } = systemTransport({ clock: systemClock, log: { warn() {} } })
    const lines = createInterface(child.stdout)
    await once(lines, 'line')
    const connected = Promise.withResolvers<void>()
    const sidecar = await Sidecar.open({
      ...PUBLISHER_DEFAULTS,
      bufferBatchesMax: 10_000,
      clock: systemClock,
      random: systemRandom,
      messages,
      log: {
        info() {
          connected.resolve()
          return 'ok'
        },
        warn() {},
      },
      engineEndpoint: `tcp://127.0.0.1:${events}`,
      eventsEndpoint: ANY,
      replayEndpoint: ANY,
    })
    t.teardown(async () => {
      child.kill('SIGKILL')
      await sidecar.close(0)
      close()
    })
    await connected.promise

    const direct = new NaiveCache()
    child.stdin.write(`${JSON.stringify({ op: 'random', n: REQUESTS, seed: 1, rank: 0 })}\n`)
    const [answer] = (await once(lines, 'line')) as [string]
    const sequence = (JSON.parse(answer) as { readonly seq: readonly number[] }).seq[0]!
    // The replay of vLLM itself, asked until it has no hole; it loses batches.
    for (let next = 0; next < sequence; ) {
      for (const batch of (await replay(messages, `tcp://127.0.0.1:${replayed}`, next)).batches) {
        if (batch.sequence !== next) continue
        next++
        direct.applyAll(decodeKvBatch(batch.payload).events)
      }
    }
    while ((sidecar.status()?.expectedSequence ?? 0) < sequence)
      await new Promise(resolve => setImmediate(resolve))

    const { replies, events: dumped } = await snapshot(messages, sidecar.replayEndpoint)
    t.match(replies, [{ kind: 'part', isWhole: true }])
    t.strictSame(new NaiveCache().applyAll(dumped).state(), direct.state())
    t.comment(`${sequence} batches, ${direct.blocks.size} blocks`)

    let answers = 0
    const dealer = messages.dial({ endpoint: `tcp://127.0.0.1:${replayed}` }, () => void answers++)
    dealer.send(snapshotRequestFrames())
    dealer.send([new Uint8Array(0), new Uint8Array(8).fill(0xff)])
    while (answers === 0) await new Promise(resolve => setImmediate(resolve))
    t.equal(answers, 1, 'vLLM answers the replay that was asked for after it, and not the snapshot')
    dealer.close()
  })
}
