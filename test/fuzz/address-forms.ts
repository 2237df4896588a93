/** Texts that say where something is: sockets, workers, peers, brokers, routes, names of models. */

import { readTenantWeights } from '@homing/config'
import { InvalidWorkerError, parseWorkerSpec } from '@homing/fleet'
import { brokerServer, EndpointError, parseBrokerEndpoint, parseEndpoint } from '@homing/transport'
import { faultOfPeer, faultOfSource, peerUrl } from '../../actors/index-service/src/requests.ts'
import { modelAliasFault, readModelAlias } from '../../packages/config/src/model-alias.ts'
import { readRelayRoute, relayRouteFault } from '../../packages/config/src/relay-route.ts'
import { faultOfTenantWeight } from '../../packages/config/src/router/queue-settings.ts'
import { faultOfSubject, subjectOf } from '../../packages/fleet/src/event-broker.ts'
import { dialled } from '../../packages/fleet/src/probe-answers.ts'
import {
  faultsOfPeers,
  faultsOfRanks,
  parsePeers,
  parseRanks,
} from '../../packages/homing/src/indexer-workers.ts'
import { atOrigin } from '../../packages/transport/src/base-url.ts'
import {
  formatEndpoint,
  parseEtcdEndpoint,
  parseSocketEndpoint,
} from '../../packages/transport/src/endpoint.ts'
import { type Decoder, ofText } from './decoder.ts'

const WORKERS = [
  'http://10.0.0.1:8001?events=5557&replay=6557&ranks=2',
  'https://[fd00::1]:8001/engines/a?events_host=gpu-1&topic=kv&block_size=16&kv_blocks=100&id=7&taints=a,b',
  'gpu:8001?nats=homing.kv.a&requests=homing.requests.a&model=llama&max_batched_tokens=8192&key_env=KEY',
]
const SOCKETS = [
  'tcp://10.0.0.1:5557',
  'tcp://[fd00::1]:5557',
  'tcp://gpu-1.example.org:5557',
  'tcp://*:5557',
  'ipc:///tmp/a',
]
const BROKERS = ['nats://10.0.0.1:4222/homing.kv.a', 'nats://a:4222,b,[fd00::1]:4222/homing.kv.a']

/** What is accepted is accepted again in the form that it is written in. */
function parsedTwice(text: string, purpose: 'bind' | 'connect'): unknown {
  const endpoint = parseEndpoint(text, purpose)
  parseEndpoint(formatEndpoint(endpoint), purpose)
  return endpoint
}

export const ADDRESS_FORMS: readonly Decoder[] = [
  ofText(
    'packages/transport/src/endpoint.ts',
    'parseEndpoint parseSocketEndpoint',
    text => [parsedTwice(text, 'connect'), parsedTwice(text, 'bind'), parseSocketEndpoint(text, 'bind')],
    { seeds: [...SOCKETS, ...BROKERS], refusals: [EndpointError] },
  ),
  ofText('packages/transport/src/endpoint.ts', 'parseBrokerEndpoint', parseBrokerEndpoint, {
    seeds: BROKERS,
    refusals: [EndpointError],
  }),
  ofText('packages/transport/src/endpoint.ts', 'parseEtcdEndpoint', parseEtcdEndpoint, {
    seeds: ['etcd://10.0.0.1:2379/homing.workers.default', 'etcds://a:2379,[fd00::1]:2379/homing.workers.a'],
    refusals: [EndpointError],
  }),
  ofText('packages/transport/src/endpoint.ts', 'brokerServer', text => brokerServer(text), {
    seeds: ['10.0.0.1:4222', 'nats://gpu', '[fd00::1]:4222'],
    refusals: [EndpointError],
  }),
  ofText(
    'packages/transport/src/base-url.ts',
    'atOrigin',
    text => atOrigin({ origin: text, path: '/v1/models' }),
    {
      seeds: ['http://10.0.0.1:8000', 'https://gpu:8000/engines/a'],
    },
  ),
  ofText('packages/fleet/src/worker-url.ts', 'parseWorkerSpec', text => parseWorkerSpec(text, 0), {
    seeds: WORKERS,
    refusals: [InvalidWorkerError],
  }),
  ofText('packages/fleet/src/probe-answers.ts', 'dialled', text => dialled(text, '10.0.0.1'), {
    seeds: SOCKETS,
  }),
  ofText(
    'packages/fleet/src/event-broker.ts',
    'faultOfSubject',
    text => [faultOfSubject(text), subjectOf(text)],
    {
      seeds: ['homing.kv.10_0_0_1_8001'],
    },
  ),
  ofText(
    'actors/index-service/src/requests.ts',
    'faultOfSource faultOfPeer peerUrl',
    text => [faultOfSource(text), faultOfPeer(text), peerUrl(text)],
    { seeds: [...SOCKETS, 'http://10.0.0.2:8090/a/'] },
  ),
  ofText(
    'packages/homing/src/indexer-workers.ts',
    'parseRanks parsePeers',
    text => {
      const defaults = { model: 'm', group: 'default', blockSizeTokens: 16 }
      if (faultsOfRanks([text]).length === 0) parseRanks([text], defaults)
      return faultsOfPeers([text]).length === 0 ? parsePeers([text]) : undefined
    },
    {
      seeds: [
        '7:0=tcp://10.0.0.1:5557?replay=tcp://10.0.0.1:6557,8=tcp://10.0.0.2:5557',
        'http://10.0.0.2:8090',
      ],
    },
  ),
  ofText(
    'packages/config/src/relay-route.ts',
    'readRelayRoute',
    text => (relayRouteFault(text) === undefined ? readRelayRoute(text) : undefined),
    { seeds: ['GET /v1/files/*', '/v1/load_lora_adapter'] },
  ),
  ofText(
    'packages/config/src/model-alias.ts',
    'readModelAlias',
    text => (modelAliasFault(text) === undefined ? readModelAlias(text) : undefined),
    { seeds: ['claude-*=qwen-large|qwen-small'] },
  ),
  ofText(
    'packages/config/src/router/queue-settings.ts',
    'readTenantWeights',
    text => [faultOfTenantWeight(text), [...readTenantWeights([text])]],
    { seeds: ['acme=2.5'] },
  ),
]
