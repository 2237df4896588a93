/**
 * The way of requests and that of KV events are chosen apart: workers of token ids over each request plane,
 * whose events come over each event plane, are known exactly.
 */

import { createPublisher } from '@homing/publisher'
import { NO_NATS_SERVER } from '@homing/transport/testing'
import t from 'tap'
import { until } from './fleet.ts'
import { broker, END_ID, MODEL, over, PLANES, routerOver, workerOf } from './token-world.ts'

const BLOCK = 16
const ANY_PORT = 'tcp://127.0.0.1:0'

for (const events of ['zmq', 'nats'] as const)
  for (const plane of PLANES) {
    const needsBroker = events === 'nats' || plane === 'nats'
    const options = { skip: needsBroker && NO_NATS_SERVER }
    t.test(`requests over ${plane} and events over ${events}`, options, async t => {
      const nats = needsBroker ? await broker(t) : undefined
      const subject = `homing.kv.${plane}`
      const atBroker = `nats://${nats?.address}/${subject}.0`
      const publisher = await createPublisher({
        blockSizeTokens: BLOCK,
        ...(events === 'zmq'
          ? { eventsEndpoint: ANY_PORT, replayEndpoint: ANY_PORT }
          : { eventsEndpoint: atBroker, replayEndpoint: atBroker }),
      })
      t.teardown(() => publisher.close(0))
      const at = (endpoint: string) => Number(endpoint.slice(endpoint.lastIndexOf(':') + 1))
      const source =
        events === 'nats'
          ? { eventsSubject: subject }
          : { eventsPort: at(publisher.endpoint), replayPort: at(publisher.replayEndpoint!) }
      const scripts = [{ ids: [5, END_ID] }]
      const { worker, running } = await workerOf(t, scripts, {
        ...over(plane, nats),
        ...source,
        blockSize: BLOCK,
      })
      const client = await routerOver(t, plane, [running], nats, ['--event-plane', events])
      const prompt = Array.from({ length: 2 * BLOCK }, (_, i) => i + 1)
      publisher.stored(undefined, [
        { hash: 1n, tokens: prompt.slice(0, BLOCK) },
        { hash: 2n, tokens: prompt.slice(BLOCK) },
      ])
      let seen: unknown
      await until(
        'its blocks are known exactly',
        async () => {
          const body = { token_ids: [...prompt, 7], model: MODEL }
          const { json } = await client.send('/route', { body })
          seen = json
          return json.overlap_blocks === 2 && json.trust === 'exact' ? true : undefined
        },
        { seen: () => seen },
      )
      const answer = await client.send('/v1/completions', { body: { model: MODEL, prompt: [...prompt, 7] } })
      t.equal(answer.status, 200)
      t.equal(answer.headers['x-homing-overlap-blocks'], '2')
      t.equal(worker.requests.length, 1)
    })
  }
