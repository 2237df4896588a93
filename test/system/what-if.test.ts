/**
 * What if over HTTP: who may ask, refusals, one question at a time, and no state left behind.
 */

import { readdirSync, readFileSync } from 'node:fs'
import process from 'node:process'
import t from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { type Fleet, startFleet, until } from './fleet.ts'

const REQUESTS = 150

async function work(fleet: Fleet): Promise<void> {
  for (let i = 0; i < REQUESTS; i++) {
    const prompt = Array.from({ length: 100 + (i % 7) }, (_, at) => 40 + ((at + (i % 5)) % 80))
    const body = { model: MODEL, prompt, max_tokens: 3, stream: true }
    await fleet.send('/v1/completions', { body })
  }
  await fleet.drained()
}

const post = (fleet: Fleet, body?: unknown, headers = {}) =>
  fleet.send('/what_if', { method: 'POST', headers, ...(body !== undefined && { body }) })
const stateOf = async (fleet: Fleet): Promise<string> => (await fleet.send('/what_if')).json.state

/** Threads of this process that answer questions. */
function threads(): number {
  if (process.platform !== 'linux') return 0
  return readdirSync('/proc/self/task').filter(task => {
    // One that has just ended has no name any more.
    try {
      return readFileSync(`/proc/self/task/${task}/comm`, 'utf8').trim() === 'what-if'
    } catch {
      return false
    }
  }).length
}

t.test('a question is asked, refused, cancelled and answered', async t => {
  const fleet = await startFleet({ engines: [{}, {}], router: ['--what-if-cpu-share', '0.02'] })
  t.teardown(() => fleet.stop())
  t.match((await fleet.send('/what_if')).json, { is_on: true, state: 'idle', run: null, answer: null })
  await work(fleet)
  t.match((await fleet.send('/what_if')).json.kept, { requests: REQUESTS, dropped_requests: 0 })

  for (const [body, message] of [
    [{ minutes: 0 }, /cannot use minutes=0: use a number of minutes above 0, up to 15 \(--what-if-minutes\)/],
    [{ minutes: 16 }, /up to 15/],
    [{ minutes: 'all' }, /minutes=all/],
    [{ profile: 'gpu' }, /profile=gpu: use one of learned, h100-8b/],
    [{ anyway: 1 }, /anyway=1: use true or false/],
    [{ worker: 1 }, /worker=1: use minutes, profile or anyway/],
    [[], /send a JSON object/],
  ] as const) {
    const refused = await post(fleet, body)
    t.equal(refused.status, 400, JSON.stringify(body))
    t.match(refused.json.error.message, message)
  }
  const stranger = await post(fleet, {}, { origin: 'http://elsewhere' })
  t.equal(stranger.status, 403)
  t.equal(await stateOf(fleet), 'idle')

  // At a fiftieth of a core it takes a while.
  const begun = await post(fleet)
  t.match([begun.status, begun.json.state, begun.json.run.minutes], [202, 'running', 15])
  const second = await post(fleet, { minutes: 1 })
  t.equal(second.status, 409)
  t.match(second.json.error, { code: 'what_if_busy', message: /DELETE \/what_if cancels it/ })
  await until('its thread says how far it is', async () => {
    const { run } = (await fleet.send('/what_if')).json
    return run.step > 0 ? true : undefined
  })
  const cancelled = await fleet.send('/what_if', { method: 'DELETE' })
  t.match([cancelled.status, cancelled.json.state], [200, 'cancelled'])
  await until('its thread is gone', async () => (threads() === 0 ? true : undefined))
  t.match((await fleet.send('/metrics')).text, /^homing_what_if_runs_total\{outcome="cancelled"\} 1$/m)
})

t.test('an answer says how well it fits, and requests go on meanwhile', async t => {
  const fleet = await startFleet({ engines: [{}, {}], router: ['--what-if-cpu-share', '1'] })
  t.teardown(() => fleet.stop())
  await work(fleet)
  await post(fleet, { anyway: true, minutes: 5 })
  await work(fleet)
  await until('it is answered', async () => ((await stateOf(fleet)) === 'running' ? undefined : true))
  const { state, answer, kept } = (await fleet.send('/what_if')).json
  t.equal(state, 'done')
  t.equal(answer.requests, REQUESTS, 'those that had ended when it was asked')
  t.equal(kept.requests, 2 * REQUESTS)
  t.ok(answer.fit.compared_requests >= 100, answer.fit.text)
  t.equal(answer.rows[0].name, 'as it is')
  t.match(
    answer.rows.map(({ workers }: { readonly workers: number }) => workers),
    [2, 3, 1, 2, 2, 2, 2],
  )
  const { text } = await fleet.send('/metrics')
  t.match(text, /^homing_what_if_runs_total\{outcome="done"\} 1$/m)
  t.match(text, new RegExp(`^homing_what_if_kept_requests ${2 * REQUESTS}$`, 'm'))
  await until('its thread is gone', async () => (threads() === 0 ? true : undefined))
})

t.test('where nothing is kept nothing can be asked', async t => {
  const fleet = await startFleet({ engines: [{}], router: ['--what-if-minutes', '0'] })
  t.teardown(() => fleet.stop())
  t.match((await fleet.send('/what_if')).json, { is_on: false, state: 'idle' })
  for (const method of ['POST', 'DELETE']) {
    const refused = await fleet.send('/what_if', { method })
    t.equal(refused.status, 404)
    t.match(
      refused.json.error.message,
      /no requests are kept: start the router with --what-if-minutes above 0/,
    )
  }
})
