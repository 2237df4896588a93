/** The program of docs/labels.md in Python: a router says of its blocks what the page says. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import { RouterClient, startEngines, startTestRouter, until } from '../system/fleet.ts'
import { CLIENT, found, packagedPython, pythonEnvironment, runPython, skipOf } from './interpreter.ts'

const python = packagedPython()
const CALLS = join(import.meta.dirname, 'calls.py')
const BLOCK = 16

t.test(
  "seed 004's calls in Python: blocks of a pool are seen at the workers that reach it",
  { skip: skipOf(python) },
  async t => {
    const child = spawn(found(python).path, ['examples/pooled.py'], {
      cwd: CLIENT,
      env: pythonEnvironment(),
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    const ended = once(child, 'close')
    const [ports] = (await once(createInterface({ input: child.stdout }), 'line')) as [string]
    const { engines, stop } = await startEngines(
      [1, 2].map(() => ({ publishesEvents: false, blockSizeTokens: BLOCK })),
    )
    t.teardown(() => stop())
    const [first, second] = engines.map(({ url }) => url) as [string, string]
    const urls = [`${first}?${ports}&id=1&block_size=${BLOCK}`, `${second}?id=2&block_size=${BLOCK}`]
    const running = await startTestRouter(urls, [])
    t.teardown(() => running.stop(0))
    const client = new RouterClient(running.url)
    const body = {
      model: 'homing-sim',
      prompt: Array.from({ length: 4 * BLOCK + 1 }, (_, i) => 40 + i),
      nvext: { agent_hints: { moe_query: { layer_id: 3, expert_ids: [0, 1] } } },
    }
    const [a, b] = [first, second].map(url => `${new URL(url).host}/0`) as [string, string]
    let seen: unknown
    const answer = await until(
      'the labels have come',
      async () => {
        const { json } = await client.send('/route', { body })
        seen = json
        return json.cxl_accessible_scores?.[b] === 4 && json.cxl_accessible_scores[a] === 2 ? json : undefined
      },
      { seen: () => seen },
    )
    t.strictSame(answer.moe_scores, { [a]: 2 })
    t.strictSame(answer.scores, { [a]: 4, [b]: 4 })

    const asking = (query: object) => ({ router_config_override: { moe_query: query } })
    const calls = [
      ['find_matches_for_request', body.prompt],
      ['find_matches_for_request', body.prompt, asking({ layer_id: 3, expert_ids: [0, 1] })],
      ['best_worker', body.prompt, asking({ layer_id: 3, expert_ids: [0], fallback_to_unlabeled: false })],
      ['best_worker', body.prompt, asking({ layer_id: -1 })],
    ].map(call => JSON.stringify(call))
    const { exitCode, stdout, stderr } = await runPython(t, found(python), [CALLS, running.url, ...calls])
    t.equal(exitCode, 0, stderr)
    const [plain, experts, strict, refused] = JSON.parse(stdout)
    const rows = (matching: number) => [
      { worker_id: 1, dp_rank: 0, overlap_blocks: 4, moe_score: matching, cxl_accessible_score: 2 },
      { worker_id: 2, dp_rank: 0, overlap_blocks: 4, moe_score: 0, cxl_accessible_score: 4 },
    ]
    const byId = (one: { worker_id: number }, other: { worker_id: number }) => one.worker_id - other.worker_id
    t.strictSame(plain.sort(byId), rows(0))
    t.strictSame(experts.sort(byId), rows(2))
    t.strictSame(strict, [1, 0, 4])
    t.match(refused, { status: 400, message: /moe_query/ })
    child.stdin.end()
    t.strictSame(await ended, [0, null])
  },
)
