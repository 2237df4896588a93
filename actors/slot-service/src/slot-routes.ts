/** The routes of the service by name, in the order in which they are tried, and what each is for. */

import type { NamedRoute, RouteNameOf } from '@homing/http'

const FILTER = '?model_name=&routing_group='

export const SLOT_ROUTES = [
  { method: 'POST', path: '/register', summary: 'registers a worker with its ranks' },
  { method: 'POST', path: '/unregister', summary: 'forgets a worker and all requests on it' },
  { method: 'GET', path: '/workers', query: FILTER, summary: 'registered workers' },
  { method: 'GET', path: '/loads', query: FILTER, summary: 'the load of each rank now' },
  { method: 'POST', path: '/add', summary: 'counts a request towards the load of a rank' },
  { method: 'POST', path: '/prefill_complete', summary: 'takes the prompt tokens of a request off the load' },
  { method: 'POST', path: '/free', summary: 'takes a request off the load' },
  {
    method: 'POST',
    path: '/potential_loads',
    summary: 'the load that each rank would have with one more request',
  },
  {
    method: 'POST',
    path: '/replica_sync/register_peer',
    summary: 'follows another slot tracker, whose requests count here from then on',
  },
  { method: 'POST', path: '/replica_sync/deregister_peer', summary: 'forgets another slot tracker' },
  { method: 'GET', path: '/replica_sync/peers', summary: 'the slot trackers that are followed' },
  { method: 'GET', path: '/health', summary: '200 while the service answers' },
  { method: 'GET', path: '/metrics', summary: 'figures in the Prometheus text format' },
  { method: 'POST', path: '/reopen_logs', summary: 'begins the access log anew, after its file was moved' },
  { method: 'GET', path: '/', summary: 'this list' },
] as const satisfies readonly NamedRoute[]

/** 'POST /register'. */
export type SlotRouteName = RouteNameOf<(typeof SLOT_ROUTES)[number]>
