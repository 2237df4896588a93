/** The routes of the service by name, in the order in which they are tried, and what each is for. */

import type { NamedRoute, RouteNameOf } from '@homing/http'

export const SERVICE_ROUTES = [
  { method: 'POST', path: '/register', summary: 'subscribes to the KV events of one rank of an engine' },
  { method: 'POST', path: '/unregister', summary: 'forgets ranks of an instance' },
  {
    method: 'GET',
    path: '/workers',
    query: '?model_name=&routing_group=',
    summary: 'registered instances, and how far they can be believed',
  },
  {
    method: 'POST',
    path: '/query',
    summary: 'how much of a prompt, given as token ids, each rank holds',
  },
  {
    method: 'POST',
    path: '/query_by_hash',
    summary: 'the same for a prompt given as local hashes of its blocks',
  },
  { method: 'GET', path: '/dump', summary: 'everything that is held, as events' },
  { method: 'POST', path: '/register_peer', summary: 'adds an indexer that can be asked at a start' },
  { method: 'POST', path: '/deregister_peer', summary: 'takes such an indexer away' },
  { method: 'GET', path: '/peers', summary: 'indexers that can be asked at a start' },
  { method: 'GET', path: '/health', summary: '200 while the service answers' },
  { method: 'GET', path: '/metrics', summary: 'figures in the Prometheus text format' },
  { method: 'POST', path: '/reopen_logs', summary: 'begins the access log anew, after its file was moved' },
  { method: 'GET', path: '/', summary: 'this list' },
] as const satisfies readonly NamedRoute[]

/** 'POST /register'. */
export type ServiceRouteName = RouteNameOf<(typeof SERVICE_ROUTES)[number]>
