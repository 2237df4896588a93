/** The routes of the service by name, in the order in which they are tried, and what each is for. */

import type { NamedRoute, RouteNameOf } from '@homing/http'

const FILTER = '?model_name=&routing_group='

export const SELECT_ROUTES = [
  { method: 'POST', path: '/workers', summary: 'adds a worker, or replaces what is known of it' },
  { method: 'GET', path: '/workers', query: FILTER, summary: 'workers, and whether they get requests' },
  { method: 'PATCH', path: '/workers/*', summary: 'changes a worker; fields that are not given stay' },
  { method: 'DELETE', path: '/workers/*', summary: 'forgets a worker and all reservations on it' },
  { method: 'POST', path: '/select', summary: 'the worker for a prompt; changes no load' },
  {
    method: 'POST',
    path: '/select_and_reserve',
    summary: 'the worker for a prompt, with the prompt counted there from then on',
  },
  { method: 'POST', path: '/reservations', summary: 'counts a prompt at the worker of a selection' },
  {
    method: 'POST',
    path: '/reservations/*/prefill_complete',
    summary: 'takes the prompt tokens of a reservation off the load',
  },
  {
    method: 'POST',
    path: '/reservations/*/output_block',
    summary: 'counts one more block of the answer of a reservation',
  },
  { method: 'DELETE', path: '/reservations/*', summary: 'takes a reservation off the load' },
  { method: 'GET', path: '/loads', query: FILTER, summary: 'the load of each rank now' },
  {
    method: 'POST',
    path: '/potential_loads',
    summary: 'the load that each rank would have with a prompt',
  },
  { method: 'POST', path: '/overlap_scores', summary: 'how much of a prompt each rank holds' },
  { method: 'GET', path: '/dump', summary: 'everything that is held, as events' },
  {
    method: 'POST',
    path: '/replica_sync/register_peer',
    summary: 'follows another service, whose reservations count here from then on',
  },
  { method: 'POST', path: '/replica_sync/deregister_peer', summary: 'forgets another service' },
  { method: 'GET', path: '/replica_sync/peers', summary: 'the services that are followed' },
  { method: 'GET', path: '/health', summary: '200 while the service answers' },
  { method: 'GET', path: '/ready', summary: '200 while a worker can get requests' },
  { method: 'GET', path: '/metrics', summary: 'figures in the Prometheus text format' },
  { method: 'POST', path: '/reopen_logs', summary: 'begins the access log anew, after its file was moved' },
  { method: 'GET', path: '/', summary: 'this list' },
] as const satisfies readonly NamedRoute[]

/** 'POST /select'. */
export type SelectRouteName = RouteNameOf<(typeof SELECT_ROUTES)[number]>
