/** Settings of `homing router`: where it listens, and what it takes from clients. */

import type { SettingDescriptor } from '../descriptor.ts'
import { shared } from '../shared-settings.ts'
import { HOUR_MS, SECOND_MS } from '../units.ts'

const GATEWAY_THREADS_MAX = 8
const GATEWAY_THREADS_DEFAULT = 1

export const listeningSettings = [
  {
    ...shared.host,
    aliases: ['http-host'],
    envAliases: [{ name: 'DYN_HTTP_HOST' }],
    help: 'Address to listen on. 0.0.0.0 is every interface of the machine, the usual default of engines; 127.0.0.1 accepts connections from this machine only. Requests need no key without --client-keys-file.',
  },
  {
    ...shared.hostNames,
    help: 'A further name under which the operator routes are called by browsers, or through a proxy on this machine. Such a request for a name that is not known is refused with 403, because a page of another site may have its own name resolve to this machine. Programs on other machines may use any name, and the API on --port takes all.',
  },
  {
    ...shared.port,
    default: 8000,
    aliases: ['http-port'],
    envAliases: [{ name: 'DYN_HTTP_PORT' }],
    help: 'Port of the OpenAI-compatible API and, without --admin-port, of the operator routes.',
  },
  {
    key: 'frontend',
    name: 'frontend',
    group: 'Listening',
    kind: 'flag',
    default: true,
    help: 'Serve the OpenAI-compatible API. With --no-frontend the router only chooses: programs ask for a worker at /v1/router/best_worker and its siblings, and send their requests themselves (docs/library.md). Then no request passes through it, /v1/models is not served, and no engine route is relayed.',
  },
  {
    key: 'adminPort',
    name: 'admin-port',
    group: 'Listening',
    kind: 'integer',
    default: undefined,
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port, named below the ready line',
    unsetMeans: 'the operator routes are on --port',
    help: 'Separate port, at the same --host, for the operator routes: /metrics, /workers, /queue, /busy_threshold, /decisions, /route, /actors, /dump, and the page for operators. Then --port serves only the API, the relayed routes, /health and /ready; everything else there is 404. This port asks for no key of clients, and --admin-key-file guards only what changes something (--admin-keys-file guards all): keep clients away from it with a firewall.',
  },
  {
    key: 'metricsPort',
    name: 'metrics-port',
    aliases: ['system-port'],
    // Negative: off.
    envAliases: [{ name: 'DYN_SYSTEM_PORT', read: text => (isOff(text) ? undefined : text) }],
    group: 'Listening',
    kind: 'integer',
    default: undefined,
    min: 0,
    max: 65_535,
    zeroMeans: 'a free port, named below the ready line',
    unsetMeans: 'none: /metrics is with the operator routes',
    help: 'Further port, at the same --host, for what watches the router and needs no way to the operator routes: /metrics, /health, and /live with the answer of /health. Each of them stays where it is, too. With --admin-keys-file /metrics asks for a key as there, and the others for none.',
  },
  {
    key: 'adminKeyFile',
    name: 'admin-key-file',
    group: 'Listening',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'only callers on the machine of the router may change anything',
    help: 'File with a key, on one line. Whoever sends it as "authorization: Bearer KEY" may use the routes that change something (POST and DELETE /workers, POST /busy_threshold) from anywhere, and the page for operators asks for it. Without it, callers on this machine may, unless a proxy speaks for others there.',
  },
  {
    key: 'adminKeysFile',
    name: 'admin-keys-file',
    group: 'Listening',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'views are open, and changes go by --admin-key-file',
    help: 'YAML or JSON file with those who may use the operator routes: name, SHA-256 of the key, and role: reader (sees everything, changes nothing) or operator; homing key NAME --role ROLE makes keys and entries. Then every operator route but the files of the page wants such a key, from this machine, too: 401 without one, 403 where its role may not. The file is looked at once a second. Excludes --admin-key-file.',
  },
  {
    key: 'page',
    name: 'page',
    group: 'Listening',
    kind: 'choice',
    choices: ['local', 'open', 'off'],
    default: 'local',
    help: 'Who sees the page for operators (GET / in a browser, docs/page.md). local: browsers that send the key of --admin-key-file; without such a file, browsers on the machine of the router that call it localhost. open: everybody who reaches the port. off: nobody; GET / is JSON then, for browsers, too.',
  },
  {
    key: 'pageTabsMax',
    name: 'page-tabs-max',
    group: 'Listening',
    kind: 'integer',
    default: 64,
    min: 1,
    max: 1000,
    unit: 'tabs',
    help: 'Most tabs of the page for operators that may be open at one time; a further one is refused with 503, and tries again. All tabs share one update, at most four times a second.',
  },
  {
    key: 'gatewayThreads',
    name: 'gateway-threads',
    group: 'Listening',
    kind: 'integer',
    default: GATEWAY_THREADS_DEFAULT,
    min: 1,
    max: GATEWAY_THREADS_MAX,
    unit: 'threads',
    help: 'Threads that take connections at --port, each with a gateway that reads short prompts and relays answers; the kernel gives each connection to one of them. 1: the gateway is on the main thread, beside router and tracker. Use more when one core is full of relaying (docs/scale-out.md). Limits such as --max-open-requests hold for all of them together. With --request-plane nats it must be 1.',
  },
  {
    ...shared.bodyBytesMax,
    envAliases: [{ name: 'DYN_HTTP_BODY_LIMIT_MB', suffix: 'MiB' }],
    help: 'Largest request body. A longer one is answered with 413 and not read to its end.',
  },
  {
    ...shared.bodiesBytesMax,
    help: 'Most bytes of request bodies in memory at one time, including bodies that are still arriving; a body is kept until its request has ended, for a retry, and its prompt has been read. A request that finds no room is answered with 503 at once, unless a tenant that holds more than its share makes room (docs/queue.md). 1 GiB is 256 KiB, about 60,000 tokens of text, for each of 4096 requests. Bodies are outside the JavaScript heap; while prompts are read, copies take up to the same amount again.',
  },
  shared.bodyTimeoutMs,
  {
    ...shared.clientStallTimeoutMs,
    help: 'How long an answer may wait for a client that takes none of its bytes. Then the connection is cut, the request is aborted at its engine and its load is freed. A client that reads slowly is not cut; but the operating system passes on its reads in large pieces, so leave some margin for slow clients.',
  },
  shared.keepAliveTimeoutMs,
  {
    ...shared.connectionsMax,
    help: 'Most connections of clients at one time, with and without a request. A further one is closed at once, and with it those that have no request now. Each is an open file: where the limit of open files (ulimit -n) allows fewer, the router takes fewer, and the log says so.',
  },
  {
    ...shared.openRequestsMax,
    help: 'Most requests in the router at one time. Further ones are answered with 503 at once, instead of slowing down all others; tenants share the places by weight: the waiting requests of one that floods make room for another (docs/queue.md). Each request takes two sockets, which count as open files: if the limit of open files (ulimit -n) allows fewer requests, the router takes fewer, and the log says so.',
  },
  {
    ...shared.openOperatorRequestsMax,
    help: 'Most requests for operator routes (/workers, /decisions, /dump and so on) at one time, apart from --max-open-requests. A request counts until its client has taken the answer, and one address has half of the places at most. Further ones are answered with 503 at once; /metrics has 8 places of its own.',
  },
  {
    key: 'corsOrigins',
    name: 'cors-origin',
    group: 'Listening',
    kind: 'list',
    placeholder: 'ORIGIN',
    separator: 'comma or space',
    unsetMeans: 'browsers let pages of no other site use the API',
    check: faultOfOrigin,
    help: "Origin whose pages may use the API from a browser, such as https://app.example.org, or * for all. It applies to --port: the API and the relayed routes, not to the operator routes. Preflights are answered, and answers and errors have the headers that browsers want, in place of the engines' own. Cookies are never allowed: clients send a key in a header.",
  },
  {
    key: 'rememberedResponsesMax',
    name: 'max-remembered-responses',
    group: 'Listening',
    kind: 'integer',
    default: 65_536,
    min: 0,
    max: 10_000_000,
    unit: 'responses',
    zeroMeans: 'remember none',
    help: 'Most responses (/v1/responses) whose worker is remembered, so that previous_response_id and requests for a stored response go to the worker that has it. Of more, the oldest are forgotten; requests that refer to those are placed by load, and with --client-keys-file refused. Each takes about 250 bytes.',
  },
  {
    key: 'warmupRequests',
    name: 'warmup-requests',
    group: 'Listening',
    kind: 'integer',
    default: 150,
    min: 0,
    max: 10_000,
    unit: 'requests',
    zeroMeans: 'none',
    help: "Requests of the router's own after its start, in memory and to no engine, one after the other while main has nothing else to do: its code is compiled by them before clients need it, where the first dozen requests of a process otherwise take some 100 ms. They are in no count of requests, receipt or log. There are none with --no-frontend, --router-mode direct or --gateway-threads above 1.",
  },
  {
    key: 'shutdownDelayMs',
    name: 'shutdown-delay',
    group: 'Listening',
    kind: 'duration',
    default: 0,
    min: 0,
    max: HOUR_MS,
    zeroMeans: 'no new connection is taken from then on',
    help: 'Time from SIGTERM or SIGINT until the router closes its port and --shutdown-timeout begins. Meanwhile GET /ready is 503, every request is served, and each answer ends its connection. Give what is in front the time to look elsewhere: see docs/deploy.md for rollouts on Kubernetes.',
  },
  {
    ...shared.shutdownTimeoutMs,
    default: 30 * SECOND_MS,
    envAliases: [{ name: 'DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS' }],
  },
  {
    ...shared.detach,
    help: 'Keep running when the process that started the router has gone. Without it, the router drains and ends when npx or pnpm is killed.',
  },
] as const satisfies readonly SettingDescriptor[]

/** A negative port, as Dynamo's variables have it. */
function isOff(text: string): boolean {
  return /^-\d+$/.test(text.trim())
}

function faultOfOrigin(text: string): string | undefined {
  if (text === '*' || /^[a-z][a-z0-9+.-]*:\/\/[^/?#\s@*,]+$/i.test(text)) return undefined
  return 'is no origin; use scheme, host and port, as in https://app.example.org, or * for all'
}
