/**
 * The policies and modes in the router: what it decides is what selection says, and its receipts show every
 * term.
 */

import { createTestSystem, recordingLog } from '@homing/actor/testing'
import type { RoutingRequest } from '@homing/placement'
import { POLICIES, POLICY_NAMES, selectionSettings } from '@homing/selection'
import t from 'tap'
import { ASK, BLOCK, fleetOf, request, start } from './router-world.ts'

const FLEET = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] })

for (const policy of POLICY_NAMES) {
  t.test(`a receipt under policy ${policy} has its name, its formula and a value for every term`, async t => {
    const { ref, hold, decide } = await start(t, FLEET, { selection: selectionSettings({ policy }) })
    hold(0, 'AB')
    const decision = await decide(request('ABCD'))
    const receipt = await ref.ask({ type: 'receipt', id: decision.id }, ASK)
    const { rules, terms } = POLICIES[policy]
    t.match(receipt, { mode: 'kv', cost: { policy, terms }, worker: 'a/0' })
    t.ok(rules.some(({ name, formula }) => receipt?.cost.rule === name && receipt.cost.formula === formula))
    for (const candidate of receipt!.candidates) t.equal(candidate.terms.length, terms.length)
  })
}

t.test('policy product goes where prefill times requests is least', async t => {
  const { hold, decide, ref } = await start(t, FLEET, { selection: selectionSettings({ policy: 'product' }) })
  hold(0, 'ABCD')
  const first = await decide(request('ABCD'))
  t.equal(first.worker, 'a/0', 'one token there, 65 elsewhere')
  const second = await decide(request('EFGH'))
  t.equal(second.worker, 'b/0')
  const receipt = await ref.ask({ type: 'receipt', id: second.id }, ASK)
  const prompt = 4 * BLOCK + 1
  t.strictSame(
    receipt!.candidates.map(({ terms, cost }) => [...terms, cost]),
    [
      [prompt + 1, 2, 2 * (prompt + 1)],
      [prompt, 1, prompt],
    ],
  )
})

t.test('mode direct goes to the worker that the request names, and refuses one that names none', async t => {
  const fleet = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1, 2] })
  const { hold, decide, ref } = await start(t, fleet, { selection: selectionSettings({ mode: 'direct' }) })
  hold(0, 'ABCD')
  hold(1, 'ABCD')
  t.equal((await decide(request('ABCD', { pinnedInstanceId: 1 }))).workerId, 'b')
  const refused = await ref.ask({ type: 'explain', request: request('ABCD') }, ASK)
  t.match(refused, {
    code: 'HOMING_ROUTER_WORKER_NOT_NAMED',
    message: /must name its worker, with nvext.backend_instance_id/,
  })
})

t.test('policy auto weighs a prompt that is not known by its estimate, others by requests', async t => {
  const none = new Int32Array(0)
  const unknown = {
    promptTokens: 1000,
    estimate: { tokensMax: 50_000 },
    unknownPromptReason: 'it holds a picture',
    localHashes: none,
    sequenceHashes: none,
  }
  const placed = async (policy: 'auto' | 'linear', extra: object) => {
    const { decide, ref } = await start(t, FLEET, { selection: selectionSettings({ policy }) })
    // One long prompt on the one, two short ones on the other.
    await decide(request('', { ...unknown, promptTokens: 60_000, pinnedInstanceId: 0 }))
    for (const letters of ['AB', 'CD']) await decide(request(letters, { pinnedInstanceId: 1 }))
    const { id, worker } = await decide(request('', { ...unknown, ...extra }))
    return [worker, (await ref.ask({ type: 'receipt', id }, ASK))?.mode]
  }
  t.strictSame(await placed('auto', {}), ['b/0', 'kv'])
  t.strictSame(await placed('auto', { estimate: undefined, promptTokens: 0 }), ['a/0', 'least-loaded'])
  t.strictSame(await placed('linear', {}), ['a/0', 'least-loaded'])
})

t.test('a prefill leg costs the decoding of one token, however long answers are', async t => {
  const role = (value: 'prefill' | 'decode') => ({ role: { value, source: 'given' } as const })
  const fleet = fleetOf(
    { id: 'a', slots: [0], ...role('prefill') },
    { id: 'b', slots: [1], ...role('decode') },
  )
  const { decide, ref } = await start(t, fleet, { selection: selectionSettings({ policy: 'auto' }) })
  const at = POLICIES.auto.terms.findIndex(({ name }) => name === 'decode_ms')
  const decodeMs = async (extra: Parameters<typeof request>[1]) => {
    const { id } = await decide(request('ABCD', extra))
    return (await ref.ask({ type: 'receipt', id }, ASK))!.candidates[0]!.terms[at]!
  }
  const whole = await decodeMs({})
  const leg = await decodeMs({ leg: { kind: 'prefill' } })
  t.ok(leg > 0 && leg < whole / 10, `${leg} ms, of a whole request ${whole} ms`)
})

t.test('weighing both ways looks at three placements, books none and writes no receipt of any', async t => {
  const role = (value: 'prefill' | 'decode') => ({ role: { value, source: 'given' } as const })
  const fleet = fleetOf(
    { id: 'a', slots: [0], ...role('prefill') },
    { id: 'b', slots: [1], ...role('decode') },
  )
  const log = recordingLog()
  const selection = selectionSettings({ policy: 'auto' })
  const { decide, ref, loads } = await start(t, fleet, { selection }, createTestSystem({ log }))
  const selected = () => log.lines.filter(({ text }) => text === 'worker selected').length
  const weigh = (routing: RoutingRequest) => ref.ask({ type: 'weighLegs', request: routing }, ASK)
  const costs = await weigh(request('ABCD'))
  t.match(costs, { wholeMs: Number, prefillMs: Number, decodeMs: Number, transferMs: Number })
  t.equal(selected(), 0)
  t.ok((await loads()).every(({ activeRequests }) => activeRequests === 0))
  await decide(request('WXYZ', { leg: { kind: 'prefill' } }))
  t.equal(selected(), 1)
  const later = await weigh(request('ABCD'))
  t.equal(later!.wholeMs, costs!.wholeMs)
  t.ok(later!.prefillMs > costs!.prefillMs, 'behind the other one')
})
