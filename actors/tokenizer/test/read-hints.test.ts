/** What a body says beside its prompt: hints for the router, ids of its client, and what goes upstream. */

import { readModelAlias } from '@homing/config'
import { modelNames } from '@homing/fleet'
import { editBody } from '@homing/openai'
import { ADAPTER } from '@homing/protocol'
import t from 'tap'
import type { ReadRequest } from '../src/index.ts'
import { BLOCK, HELLO, read, refusal, TEXT, textOf } from './body-reader-world.ts'
import { adapter, fleetOf, model } from './fleet.ts'

t.test('what is meant for the router is cut; every other byte stays', async t => {
  const before = '{ "model" : "m",\t"temperature":1.0, "seed":12345678901234567890,"2":1,"1":2 '
  const after = ` ,"messages" :[{"role":"user","content":"h\\u00e9llo \\ud83d\\ude00"}],"top_p":1e-1 }\n`
  const nvext = '"nvext" : {"annotations":["query_instance_id"], "a":[1,{"b":"}"}]}'
  const request = await read(`${before}, ${nvext}${after}`)
  t.equal(textOf(request.upstreamBody), `${before.trimEnd()}${after}`)
  t.strictSame(request.annotations, ['query_instance_id'])
  t.equal((await read(`${before}${after}`)).upstreamBody, undefined)
})

t.test('a stream that did not ask for usage can be asked, in the bytes that go upstream', async t => {
  const asked = ({ upstreamBody, usageEdit }: ReadRequest, body: string) =>
    usageEdit === undefined ? undefined : textOf(editBody(upstreamBody ?? Buffer.from(body), usageEdit))
  const plain = '{"model":"m","prompt":"x","stream":true}'
  t.equal(
    asked(await read(plain), plain),
    '{"model":"m","prompt":"x","stream":true,"stream_options":{"include_usage":true}}',
  )
  const cut = '{"nvext":{"annotations":["some"]},"model":"m","prompt":"x","stream":true,"stream_options":{}}'
  t.equal(
    asked(await read(cut), cut),
    '{"model":"m","prompt":"x","stream":true,"stream_options":{"include_usage":true}}',
  )
  for (const rest of ['', ',"stream":false', ',"stream":true,"stream_options":{"include_usage":true}']) {
    t.equal((await read(`{"model":"m","prompt":"x"${rest}}`)).usageEdit, undefined, rest)
  }
  for (const several of ['"prompt":"x","n":2', '"prompt":["x","y"]', '"prompt":[[1],[2]]']) {
    const { usageEdit } = await read(`{"model":"m","stream":true,${several}}`)
    t.equal(usageEdit, undefined, `${several}: several choices have several last chunks`)
  }
})

t.test('hints of nvext and its headers reach the router', async t => {
  const body = {
    model: 'm',
    prompt: TEXT,
    nvext: {
      backend_instance_id: 3,
      dp_rank: 1,
      extra_fields: ['worker_id'],
      allowed_worker_ids: [3, '4'],
      routing_constraints: { required_taints: ['fast'], preferred_taints: { near: 1.5 } },
      router_config_override: { overlap_score_weight: 0.5, overlap_score_credit: 2, router_temperature: 0.7 },
    },
  }
  const expected = {
    override: { overlapWeight: 0.5, overlapCredit: 2, temperature: 0.7 },
    constraints: {
      allowedInstanceIds: [3, 4],
      requiredTaints: ['fast'],
      preferredTaints: { near: 1.5 },
    },
    pinnedInstanceId: 3,
    pinnedRank: 1,
    extraFields: ['worker_id'],
  }
  t.match(await read(body), expected)
  const headers = { 'x-worker-instance-id': '5', 'x-dp-rank': '2' }
  t.match(await read(body, { headers }), { ...expected, pinnedInstanceId: 5, pinnedRank: 2 })
  const [code, param] = await refusal(body, { headers: { 'x-dp-rank': 'two' } })
  t.strictSame([code, param], ['HOMING_OPENAI_INVALID_REQUEST', 'x-dp-rank'])
})

const CLAIMED = { model: 'm', messages: HELLO, nvext: { token_data: [9, 8, 7, 6, 5] } }

t.test('token_data is checked, and the prompt of the body is read all the same', async t => {
  const request = await read(CLAIMED)
  const { messages } = CLAIMED
  t.strictSame(request, await read({ model: 'm', messages, nvext: {} }))
  t.equal(request.tokenizedBy, 'router')
  t.equal(textOf(request.upstreamBody), JSON.stringify({ model: 'm', messages: HELLO }))
  t.strictSame((await refusal({ ...CLAIMED, nvext: { token_data: [9, 'x'] } })).slice(0, 2), [
    'HOMING_OPENAI_INVALID_REQUEST',
    'nvext.token_data[1]',
  ])
  t.strictSame((await refusal({ ...CLAIMED, nvext: { token_data: [] } })).slice(0, 2), [
    'HOMING_OPENAI_EMPTY_PROMPT',
    'nvext.token_data',
  ])
})

t.test(
  'token_data that is trusted is the prompt, unless the body is much longer, and is not audited',
  async t => {
    const request = await read(CLAIMED, { trustsTokenData: true })
    t.strictSame([request.tokenizedBy, ...(request.tokenIds ?? [])], ['client', 9, 8, 7, 6, 5])
    t.equal(request.localHashes.length, 2)
    t.equal(request.cacheUse, 'claimed')
    t.notOk(request.isCounted)
    const flood = { ...CLAIMED, messages: [{ role: 'user', content: TEXT.repeat(1000) }] }
    const { promptTokens } = await read(flood, { trustsTokenData: true })
    t.ok(promptTokens > TEXT.length * 100, `${promptTokens}, not 5`)
  },
)

t.test('token_data of a request with a picture counts the picture, not its encoded bytes', async t => {
  const picture = { type: 'image_url', image_url: { url: `data:image/png;base64,${'QUJD'.repeat(99_999)}` } }
  const messages = [{ role: 'user', content: [picture] }]
  const { promptTokens } = await read(
    { model: 'm', messages, nvext: { token_data: [5] } },
    { trustsTokenData: true },
  )
  t.ok(promptTokens >= 512 && promptTokens < 600, String(promptTokens))
})

t.test('an alias is the model behind it, in the body of the engine, too', async t => {
  const fleet = fleetOf({ models: [model('m'), adapter('poet', 'm')], blockSizeTokens: BLOCK })
  const names = modelNames(fleet, ['haiku=m', 'claude-*=poet'].map(readModelAlias))
  const ask = (name: string, more: object = {}) => read({ model: name, messages: HELLO, ...more }, { names })
  const plain = await read({ model: 'm', messages: HELLO })
  const haiku = await ask('haiku')
  t.strictSame([haiku.model, haiku.sequenceHashes], ['m', plain.sequenceHashes])
  t.equal(textOf(haiku.upstreamBody), JSON.stringify({ model: 'm', messages: HELLO }))
  t.equal((await ask('m')).upstreamBody, undefined)
  t.equal((await ask('claude-haiku-4-5')).model, 'poet')
  const both = await ask('haiku', { nvext: { cache_salt: 's' }, stream: true })
  t.equal(
    textOf(both.upstreamBody),
    JSON.stringify({ model: 'm', messages: HELLO, stream: true, cache_salt: 's' }),
  )
  const edited = editBody(both.upstreamBody!, both.usageEdit!)
  t.match(JSON.parse(textOf(edited)!), { model: 'm', stream_options: { include_usage: true } })
  t.equal((await ask('gpt')).unknownPromptReason, 'no worker serves the model')
})

t.test('a model that no worker lists is an adapter, where its base model is given', async t => {
  const unlistedAdaptersOf = 'm'
  const listed = await read({ model: 'poet', messages: HELLO }, { unlistedAdaptersOf })
  const unlisted = await read({ model: 'bard', messages: HELLO }, { unlistedAdaptersOf })
  t.strictSame([unlisted.model, unlisted.upstreamBody], ['bard', undefined])
  t.equal(unlisted.promptTokens, listed.promptTokens)
  t.not(unlisted.localHashes[0], listed.localHashes[0], 'adapters share no blocks')
  t.strictSame(unlisted.separated?.unnamed, [ADAPTER])
})

t.test('a member of the body names the session, and how long the answer may be', async t => {
  const affinityFields = ['prompt_cache_key', 'user']
  const sessionOf = async (more: object) =>
    (await read({ model: 'm', messages: HELLO, ...more }, { affinityFields })).session
  t.equal(await sessionOf({ user: 'u', prompt_cache_key: 'k' }), 'k')
  t.equal(await sessionOf({ user: 'u', prompt_cache_key: '' }), 'u')
  t.equal(await sessionOf({ user: 7, prompt_cache_key: null }), undefined)
  t.equal((await read({ model: 'm', messages: HELLO, user: 'u' })).session, undefined)
  t.equal((await read({ model: 'm', messages: HELLO, max_tokens: 7 })).outputTokensMax, 7)
})
