/**
 * A selection of one's own: the example of docs/policies.md, what a module may do, and what becomes of one
 * that fails.
 */

import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { type DemoFleet, type RunningRouter, SettingsError, startDemoFleet, startRouter } from 'homing'
import t, { type Test } from 'tap'

const PAGE = readFileSync(new URL('../../../docs/policies.md', import.meta.url), 'utf8')

/** A folder within this package, so that its name is found. */
const fixtures = fileURLToPath(new URL('./fixtures', import.meta.url))
mkdirSync(fixtures, { recursive: true })
const folder = mkdtempSync(join(fixtures, 'selection-'))
let modules = 0

function moduleOf(source: string, name = `module-${++modules}.ts`): string {
  const file = join(folder, name)
  writeFileSync(file, source)
  return file
}

let fleet: DemoFleet
t.before(async () => {
  fleet = await startDemoFleet({ demoEngines: 2, logLevel: 'warn' })
})
t.teardown(async () => {
  await fleet.stop()
  rmSync(folder, { recursive: true })
})

async function start(t: Test, source: string): Promise<RunningRouter> {
  const workers = fleet.workers.map((url, i) => `${url}${url.includes('?') ? '&' : '?'}taints=zone-${i}`)
  const selectionModule = moduleOf(source)
  const router = await startRouter({
    workers,
    selectionModule,
    host: '127.0.0.1',
    port: 0,
    logLevel: 'silent',
    seed: 1,
  })
  t.teardown(() => router.stop(0))
  return router
}

async function ask(router: RunningRouter, path: string, extra: object = {}) {
  const answer = await fetch(router.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: fleet.model, prompt: 'home again '.repeat(20), max_tokens: 1, ...extra }),
  })
  // biome-ignore lint/suspicious/noExplicitAny: answers of many forms
  return { status: answer.status, headers: answer.headers, json: (await answer.json()) as any }
}

t.test(
  '001-4: the selection of docs/policies.md goes where the fewest tokens have to be computed',
  async t => {
    const [, module] = /```ts\n(\/\/ fewest-prefill\.ts\n.*?)```/s.exec(PAGE)!
    const [, program, output] = /```ts\n(\/\/ program\.ts\n.*?)```\n\n```\n(.*?)```/s.exec(PAGE)!
    moduleOf(module!, 'fewest-prefill.ts')
    const { NODE_OPTIONS: _, ...env } = process.env
    const options = { timeout: 300_000, env }
    const { stdout, stderr } = await promisify(execFile)(
      process.execPath,
      [moduleOf(program!, 'program.ts')],
      options,
    )
    t.equal(stdout, output)
    t.equal(stderr, '')
  },
)

t.test('001-4: a program can choose by itself what POST /route shows, and pin the request to it', async t => {
  const router = await startRouter({ workers: fleet.workers, host: '127.0.0.1', port: 0, logLevel: 'silent' })
  t.teardown(() => router.stop(0))
  const instances = new Map(
    router.fleet.workers.flatMap(({ instanceId, keys }) => keys.map(({ key }) => [key, instanceId])),
  )
  const { json } = await ask(router, '/route')
  const loads = json.candidates as { worker: string; prefill_tokens: number }[]
  const best = loads.reduce((a, b) => (b.prefill_tokens < a.prefill_tokens ? b : a))
  const nvext = { backend_instance_id: instances.get(best.worker) }
  const answer = await ask(router, '/v1/completions', { nvext })
  t.equal(answer.headers.get('x-homing-worker'), best.worker)
})

t.test('filter, score and pick decide, and the receipt says so', async t => {
  const router = await start(
    t,
    `import { defineSelection } from 'homing'
     export default defineSelection({
       name: 'mine', unit: 'points',
       filter: ({ taints }, { model }) => model !== 'none' && taints.includes('zone-1'),
       score: ({ dpRank, prefillTokens }) => dpRank + prefillTokens / 1000,
       pick: (candidates, costs, request, random) => costs.length - 1 - Math.floor(random.next()),
     })`,
  )
  const { json } = await ask(router, '/route')
  t.match(json, { mode: 'kv', policy: 'mine', rule: 'mine', cost_formula: 'score', cost_unit: 'points' })
  t.equal(json.candidates.length, 1)
  const [only] = json.candidates
  t.equal(only.worker, json.worker)
  t.equal(only.cost, only.prefill_tokens / 1000)
  t.match(json.excluded, [{ reason: 'the filter of the selection mine left it out' }])
})

t.test('a filter that leaves nobody is 503, and says whom it left out', async t => {
  const router = await start(
    t,
    `export default { name: 'none', unit: '', filter: () => false, score: () => 0 }`,
  )
  const answer = await ask(router, '/v1/completions')
  t.equal(answer.status, 503)
  t.match(
    answer.json.error.message,
    /the filter of the selection "none" left out every worker .*127\.0\.0\.1:/,
  )
})

t.test(
  'a step that fails or answers nonsense is 500 with the step and the reason, and the router goes on',
  async t => {
    // One router for all cases: its module asks for the steps of the case at hand.
    const router = await start(
      t,
      `const steps = () => globalThis.selectionSteps
       export default { name: 'mine', unit: '',
         filter: () => steps().filter?.() ?? true,
         score: () => steps().score?.() ?? 0,
         pick: () => steps().pick?.() ?? 0 }`,
    )
    const shared = globalThis as { selectionSteps?: Readonly<Record<string, () => unknown>> }
    const cases: readonly [NonNullable<typeof shared.selectionSteps>, RegExp][] = [
      [{ score: () => raise(new Error('out of ideas')) }, /score .* failed for 127.*out of ideas/],
      [{ score: () => Number.NaN }, /score .* answered NaN for 127.*use a finite number/],
      [{ score: async () => 1 }, /score .* answered \[object Promise\] for 127.*use a finite number/],
      [{ filter: () => raise(7) }, /filter .* failed for 127.*: 7/],
      [{ filter: async () => true }, /filter .* answered \[object Promise\] for 127.*use true or false/],
      [{ pick: () => 2 }, /pick .* answered 2: use the index of a candidate, 0 … 1/],
    ]
    for (const [steps, message] of cases) {
      shared.selectionSteps = steps
      const answer = await ask(router, '/v1/completions')
      t.equal(answer.status, 500)
      t.match(answer.json.error.message, message)
    }
    shared.selectionSteps = {}
    t.equal((await ask(router, '/v1/completions')).status, 200)
  },
)

t.test('a prompt that is not known is placed by the selection, too, and it is told', async t => {
  const router = await start(
    t,
    `export default { name: 'told', unit: '', score: ({ taints }, { isPromptKnown }) =>
       taints.includes('zone-1') === isPromptKnown ? 1 : 0 }`,
  )
  const known = await ask(router, '/route')
  const unknown = await ask(router, '/route', { truncate_prompt_tokens: 4 })
  t.match(unknown.json, { mode: 'kv', unknown_prompt: String })
  t.not(known.json.worker, unknown.json.worker)
})

t.test('a module that cannot be used stops the start, with its name and the reason', async t => {
  const faultOf = async (selectionModule: string, extra: object = {}): Promise<string> => {
    try {
      const { workers } = fleet
      await (await startRouter({ workers, selectionModule, host: '127.0.0.1', port: 0, ...extra })).stop(0)
      return 'started'
    } catch (thrown) {
      return thrown instanceof SettingsError ? thrown.faults.join('; ') : String(thrown)
    }
  }
  t.match(await faultOf('/nowhere/mine.ts'), /--selection-module "\/nowhere\/mine.ts" cannot be loaded: /)
  t.match(
    await faultOf(moduleOf('export default 7')),
    /no selection as its default export: it is not an object/,
  )
  t.match(await faultOf(moduleOf(`export default { name: 'x', unit: '' }`)), /score is not a function/)
  t.match(await faultOf(moduleOf('export const a = 1')), /it is not an object with name, unit and score/)
  t.match(await faultOf('x', { routerPolicy: 'product' }), /takes the place of .*: leave one of them out/)
  t.match(await faultOf('x', { routerMode: 'random' }), /no effect in .* random/)
})

function raise(thrown: unknown): never {
  throw thrown
}
