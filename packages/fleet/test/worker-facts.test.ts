import t from 'tap'
import {
  type EventSource,
  eventSourceOf,
  namedRank,
  parseWorkerSpec,
  type ReachedOutcome,
} from '../src/index.ts'

function outcome(ranks: number | undefined, eventSources: readonly EventSource[]): ReachedOutcome {
  return {
    reached: true,
    engine: 'vllm',
    engineVersion: '',
    models: [],
    blockSizeTokens: undefined,
    maxBatchedTokens: undefined,
    kvBlocks: undefined,
    ranks,
    canTokenize: false,
    eventSources,
    processStartSeconds: undefined,
    unanswered: [],
  }
}

function source(dpRank: number, host = 'h'): EventSource {
  const [endpoint, replayEndpoint] = [`tcp://${host}:${5557 + dpRank}`, `tcp://${host}:${6557 + dpRank}`]
  return { dpRank, endpoint, replayEndpoint, topic: '' }
}

t.test('ranks of a larger engine count from 0, in their order', async t => {
  const endpoints = (ranks: number, named: readonly number[], url = 'http://h:8000') =>
    Array.from({ length: ranks }, (_, dpRank) => {
      const sources = named.map(rank => source(rank))
      return eventSourceOf(parseWorkerSpec(url, 0), outcome(ranks, sources), dpRank, undefined)
    })
  t.match(endpoints(1, [1]), [{ dpRank: 0, endpoint: 'tcp://h:5558', namedRank: 1 }])
  t.match(endpoints(4, [7, 5, 4, 6]), [
    { dpRank: 0, endpoint: 'tcp://h:5561', replayEndpoint: 'tcp://h:6561', namedRank: 4 },
    { dpRank: 1, endpoint: 'tcp://h:5562', namedRank: 5 },
    { dpRank: 2, endpoint: 'tcp://h:5563', namedRank: 6 },
    { dpRank: 3, endpoint: 'tcp://h:5564', namedRank: 7 },
  ])
  t.strictSame(endpoints(2, [0, 1]), [source(0), source(1)], 'as ever')
  t.strictSame(endpoints(2, [1]), [undefined, source(1)], 'a rank that has none leaves the others')
  t.match(endpoints(1, [4], 'http://h:8000?events=7000'), [{ endpoint: 'tcp://h:7000' }], 'given wins')
})

t.test('a number is taken by its place only where one is too large', async t => {
  t.strictSame(
    [0, 1, 2].map(rank => namedRank([4, 6], rank, 2)),
    [4, 6, undefined],
  )
  t.strictSame(
    [0, 1].map(rank => namedRank([1], rank, 2)),
    [undefined, 1],
  )
  t.equal(namedRank([], 0, 1), undefined)
})

t.test('the host that is given for events counts, whatever address the engine names', async t => {
  const endpoints = (host: string, url: string) => {
    const found = eventSourceOf(parseWorkerSpec(url, 0), outcome(1, [source(0, host)]), 0, undefined)
    return [found?.endpoint, found?.replayEndpoint]
  }
  const [at, replay] = ['tcp://node-7:5557', 'tcp://node-7:6557']
  for (const host of ['proxy', '10.255.255.1', '[::1]'])
    t.strictSame(endpoints(host, 'http://proxy:8000?events_host=node-7'), [at, replay], host)
  t.strictSame(endpoints('[::1]', 'http://proxy:8000?events_host=fe80::7'), [
    'tcp://[fe80::7]:5557',
    'tcp://[fe80::7]:6557',
  ])
  t.strictSame(endpoints('[::1]', 'http://proxy:8000'), ['tcp://[::1]:5557', 'tcp://[::1]:6557'])
  t.strictSame(endpoints('10.255.255.1', 'http://proxy:8000?events_host=node-7&replay=7000'), [
    at,
    'tcp://node-7:7000',
  ])
})
