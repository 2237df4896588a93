/**
 * Long prompts in slices over real sockets: what engines compute, what clients get, and that nothing is left.
 */

import t from 'tap'
import { chunksOf, send, startFleet, until } from './fleet.ts'

const MODEL = 'homing-sim'
const BLOCK = 16
const STEP = 256
/** Seven slices and a rest. */
const PROMPT_TOKENS = 1600

function prompt(marker: number, tokens: number): readonly number[] {
  return Array.from({ length: tokens }, (_, at) => 40 + ((marker * 7 + at * (1 + (marker % 5))) % 80))
}

function bodyOf(marker: number, tokens: number) {
  return {
    ...{ model: MODEL, prompt: prompt(marker, tokens), max_tokens: 4, stream: true },
    stream_options: { include_usage: true },
  }
}

interface Chunk {
  readonly choices: readonly { readonly text: string }[]
  readonly usage?: { readonly prompt_tokens: number }
}

/** What a client reads in a stream. */
function readOf(text: string): { readonly texts: string; readonly promptTokens: number | undefined } {
  const chunks = chunksOf(text) as readonly Chunk[]
  return {
    texts: chunks.flatMap(({ choices }) => choices.map(choice => choice.text)).join(''),
    promptTokens: chunks.at(-1)?.usage?.prompt_tokens,
  }
}

t.test('while another tenant is served, long prompts come to their engines in slices', async t => {
  const engines = [1, 2].map(() => ({ blockSizeTokens: BLOCK, stepTokensMax: STEP }))
  const fleet = await startFleet({ engines, workerQuery: () => `?max_batched_tokens=${STEP}` })
  t.teardown(() => fleet.stop())
  const ask = (tenant: string, marker: number, tokens: number, id = `${tenant}-${marker}`) =>
    fleet.send('/v1/completions', {
      body: bodyOf(marker, tokens),
      headers: { 'x-homing-tenant': tenant, 'x-request-id': id },
    })
  const metric = async (name: string): Promise<number> => {
    const { text } = await fleet.send('/metrics')
    const line = text.split('\n').find(each => each.startsWith(name))
    return Number(line?.split(' ').at(-1) ?? 0)
  }

  t.equal((await ask('flood', 1, PROMPT_TOKENS)).status, 200)
  t.equal(await metric('homing_gateway_prefill_slices_total'), 0, 'no other tenant was served')

  t.equal((await ask('chat', 2, 50)).status, 200)
  const answers = await Promise.all([3, 4, 5, 6].map(marker => ask('flood', marker, PROMPT_TOKENS)))
  for (const [i, answer] of answers.entries()) {
    t.equal(answer.status, 200)
    const direct = await send(fleet.engines[0]!.url, '/v1/completions', {
      body: bodyOf(3 + i, PROMPT_TOKENS),
    })
    t.strictSame(readOf(answer.text), readOf(direct.text), 'the answer is that of its engine')
  }
  t.equal(await metric('homing_gateway_prefill_slices_total'), 4 * 7)
  t.equal(await metric('homing_gateway_sliced_prompts_total{outcome="computed"}'), 4)
  t.equal(await metric('homing_request_cached_tokens_total'), 0, 'no prompt was there before it came')

  const { decisions } = (await fleet.send('/decisions?limit=100')).json as {
    readonly decisions: readonly {
      readonly request_id: string
      readonly worker: string
      readonly slices: { readonly sent: number; readonly decision: string } | null
    }[]
  }
  const ofOne = decisions.filter(({ request_id }) => request_id === 'flood-3')
  t.strictSame(
    ofOne.map(({ slices }) => slices?.sent),
    [7, 0],
    'the choice of the worker, and the rest',
  )
  t.equal(ofOne[0]?.worker, ofOne[1]?.worker)
  const { requests } = (await fleet.send('/queue')).json as { readonly requests: number }
  t.equal(requests, 0, 'nothing waits')
  await until('nothing is booked', async () => {
    const keys = (await fleet.workers()).flatMap(({ worker_keys }) => worker_keys)
    return keys.every(({ load }) => load.requests === 0) ? true : undefined
  })
  const { models } = (await fleet.send('/queue')).json as {
    readonly models: readonly {
      readonly tenants: readonly {
        readonly tenant: string
        readonly long_prompt_workers: number
        readonly served: { readonly uncached_tokens: number }
      }[]
    }[]
  }
  const flood = models[0]!.tenants.find(({ tenant }) => tenant === 'flood')!
  t.equal(flood.long_prompt_workers, 0)
  t.equal(flood.served.uncached_tokens, 5 * PROMPT_TOKENS, 'it is charged for its tokens once')
})
