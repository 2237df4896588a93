/** Settings of `homing router` and `homing picker`: where Envoys ask for workers, and what they are told. */

import type { SettingDescriptor } from '../descriptor.ts'

const GROUP = 'Endpoint picker'
const FALLBACKS_MAX = 16

export const pickerSettings = [
  {
    key: 'pickerPort',
    name: 'picker-port',
    group: GROUP,
    kind: 'integer',
    default: undefined,
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port, named below the ready line',
    unsetMeans: 'no Envoy asks this router',
    help: 'Port, at the same --host, where Envoys and gateways of the Gateway API inference extension ask for the worker of a request (ext_proc over gRPC, docs/endpoint-picker.md). They send it there themselves, and show the answer to this port. Who reaches it may ask as any client: keep others away from it with a firewall or a network policy.',
  },
  {
    key: 'pickerHealthPort',
    name: 'picker-health-port',
    group: GROUP,
    kind: 'integer',
    default: undefined,
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port, named below the ready line',
    unsetMeans: 'the health service is on --picker-port only',
    help: 'Port with the gRPC health service alone and without TLS, for the probes of Kubernetes, which speak none. liveness is SERVING while the process answers; readiness, envoy.service.ext_proc.v3.ExternalProcessor and the others while GET /ready is 200.',
  },
  {
    key: 'pickerTls',
    name: 'picker-tls',
    group: GROUP,
    kind: 'choice',
    choices: ['self-signed', 'files', 'off'],
    default: 'self-signed',
    help: 'Certificate of --picker-port. self-signed: one that is made at each start, for gateways that encrypt and do not check, as they do by default for the pickers of an InferencePool. files: that of --tls-cert and --tls-key. off: plain HTTP/2.',
  },
  {
    key: 'pickerFallbacks',
    name: 'picker-fallbacks',
    group: GROUP,
    kind: 'integer',
    default: 1,
    min: 0,
    max: FALLBACKS_MAX,
    unit: 'workers',
    zeroMeans: 'an Envoy is told of the chosen one only',
    help: 'Other workers that an Envoy is told of behind the chosen one, for retries where it cannot reach that. They take turns. A request that one of them answers is placed there anew.',
  },
  {
    key: 'pickerConformance',
    name: 'picker-conformance',
    group: GROUP,
    kind: 'flag',
    default: false,
    help: "For the extension's conformance tests of a gateway, and for nothing else: the header test-epp-endpoint-selection of any client confines the choice to the endpoints that it names, and x-conformance-test-served-endpoint of the answer says which one has answered.",
  },
] as const satisfies readonly SettingDescriptor[]
