/**
 * Routes that the gateway answers itself. `--relay-route` accepts neither these nor the operator routes.
 */

import type { Route } from '@homing/http'

export interface OwnRoute extends Route {
  /** Its label in metrics. */
  readonly name: string
}

const post = <P extends string>(name: string, path: P) => {
  return { name, method: 'POST', path } as const
}
const get = <P extends string>(name: string, path: P) => {
  return { name, method: 'GET', path } as const
}

/** In the order in which they are tried. */
export const OWN_ROUTES = [
  post('chat', '/v1/chat/completions'),
  post('completions', '/v1/completions'),
  post('messages', '/v1/messages'),
  post('responses', '/v1/responses'),
  get('models', '/v1/models'),
  get('models', '/v1/models/*'),
  get('health', '/health'),
  get('ready', '/ready'),
] as const satisfies readonly OwnRoute[]

export type OwnPath = (typeof OWN_ROUTES)[number]['path']
