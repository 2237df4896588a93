/** The operator routes, in the order in which they are tried. Each has a label for metrics. */

const get = <P extends string>(name: string, path: P) => ({ name, method: 'GET', path }) as const

export const OPERATOR_ROUTES = [
  { name: 'route', method: 'POST', path: '/route' },
  get('decisions', '/decisions'),
  get('decisions', '/decisions/*'),
  get('workers', '/workers'),
  { name: 'workers', method: 'POST', path: '/workers' },
  get('workers', '/workers/*'),
  { name: 'workers', method: 'POST', path: '/workers/*' },
  { name: 'workers', method: 'DELETE', path: '/workers/*' },
  get('queue', '/queue'),
  get('replicas', '/replicas'),
  get('busy_threshold', '/busy_threshold'),
  { name: 'busy_threshold', method: 'POST', path: '/busy_threshold' },
  get('what_if', '/what_if'),
  { name: 'what_if', method: 'POST', path: '/what_if' },
  { name: 'what_if', method: 'DELETE', path: '/what_if' },
  { name: 'program', method: 'POST', path: '/v1/router/best_worker' },
  { name: 'program', method: 'POST', path: '/v1/router/new' },
  { name: 'program', method: 'POST', path: '/v1/router/potential_loads' },
  { name: 'program', method: 'POST', path: '/v1/router/find_matches' },
  { name: 'program', method: 'POST', path: '/v1/router/query' },
  { name: 'program', method: 'POST', path: '/v1/router/mark_prefill_complete' },
  { name: 'program', method: 'POST', path: '/v1/router/mark_prefill' },
  { name: 'program', method: 'POST', path: '/v1/router/free' },
  { name: 'program', method: 'POST', path: '/v1/router/mark_free' },
  get('program', '/v1/router/dump_events'),
  get('actors', '/actors'),
  get('flight', '/actors/flight'),
  get('dump', '/dump'),
  get('metrics', '/metrics'),
  get('page', '/page/*'),
  get('overview', '/'),
] as const

export type OperatorRoute = (typeof OPERATOR_ROUTES)[number]
export type OperatorPath = (typeof OPERATOR_ROUTES)[number]['path']
