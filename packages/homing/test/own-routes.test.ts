/**
 * Routes that the gateway serves itself, and what `--relay-route` refuses because of them: one list as seen
 * from two packages.
 */

import { OPERATOR_ROUTES } from '@homing/actors/console'
import { ENGINE_ROUTES, OWN_ROUTES } from '@homing/actors/gateway'
import { relayRouteFault } from '@homing/config'
import t from 'tap'

const ROUTES = [...OWN_ROUTES, ...OPERATOR_ROUTES]
const OWN = 'is a route of the router itself'

t.test('each route of the router itself is refused as a relayed one, with any method', async t => {
  for (const { method, path } of ROUTES) {
    for (const route of [path, `${method} ${path}`, `DELETE ${path}`])
      t.equal(relayRouteFault(route), OWN, route)
  }
})

t.test('nothing else is refused as a route of the router itself', async t => {
  const others = ['/health_generate', '/v1/files', '/v1/chat', '/v1/modelsx', '/queues', '/busy_thresholds']
  for (const path of [...ENGINE_ROUTES.map(({ path }) => path), ...others]) {
    t.not(relayRouteFault(path), OWN, path)
    t.notOk(
      ROUTES.some(own => own.path === path),
      path,
    )
  }
})
