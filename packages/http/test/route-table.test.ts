/** From method and path to a route. */

import t from 'tap'
import { MethodNotAllowedError, NoSuchRouteError, RouteTable } from '../src/index.ts'

const table = new RouteTable([
  { method: 'GET', path: '/models' },
  { method: 'POST', path: '/models' },
  { method: 'GET', path: '/models/*' },
  { method: 'GET', path: '/' },
])

t.test('a route is found by method and path; HEAD is GET', async t => {
  for (const method of ['GET', 'POST'])
    t.strictSame(table.lookUp({ method, path: '/models' }), {
      route: { method, path: '/models' },
      parameter: '',
    })
  t.match(table.lookUp({ method: 'HEAD', path: '/' }), { route: { path: '/' } })
})

t.test('a star takes the rest of the path, decoded, and at least one character', async t => {
  const parameterOf = (path: string): unknown => {
    const found = table.lookUp({ method: 'GET', path })
    return 'route' in found ? found.parameter : undefined
  }
  t.equal(parameterOf('/models/a'), 'a')
  t.equal(parameterOf('/models/org%2Fpoet'), 'org/poet')
  t.equal(parameterOf('/models/a/b'), 'a/b')
  t.equal(parameterOf('/models/100%'), '100%')
  t.equal(parameterOf('/models/'), undefined)
})

t.test('a star inside a pattern takes one segment, decoded, and at least one character', async t => {
  const bookings = new RouteTable([
    { method: 'POST', path: '/bookings/*/end' },
    { method: 'DELETE', path: '/bookings/*' },
  ])
  const parameterOf = (method: string, path: string): unknown => {
    const found = bookings.lookUp({ method, path })
    return 'route' in found ? found.parameter : found
  }
  t.equal(parameterOf('POST', '/bookings/a/end'), 'a')
  t.equal(parameterOf('POST', '/bookings/org%2Fa/end'), 'org/a')
  t.equal(parameterOf('DELETE', '/bookings/end'), 'end')
  t.strictSame(parameterOf('POST', '/bookings/a/b/end'), ['DELETE'])
  t.strictSame(parameterOf('POST', '/bookings//end'), ['DELETE'])
  t.strictSame(parameterOf('POST', '/bookings/end'), ['DELETE'])
  t.equal(bookings.at('/bookings/a/end')?.path, '/bookings/*/end')
})

t.test('no path climbs, however it is written', async t => {
  for (const path of ['/models/..', '/models/../x', '/models/%2e%2e/x', '/models/..%2Fx'])
    t.strictSame(table.lookUp({ method: 'GET', path }), [], path)
  t.match(table.lookUp({ method: 'GET', path: '/models/..x' }), { parameter: '..x' })
})

t.test('a wrong method is told the right ones; an unknown path where the routes are listed', async t => {
  t.throws(() => table.find({ method: 'PUT', path: '/models' }, 'h'), {
    allowed: ['GET', 'POST'],
    message: 'cannot PUT /models: use GET or POST',
    constructor: MethodNotAllowedError,
  })
  const path = `/${'x'.repeat(500)}`
  t.throws(() => table.find({ method: 'GET', path }, 'GET / lists them'), {
    message: `cannot serve ${path.slice(0, 200)}…: no such route; GET / lists them`,
    constructor: NoSuchRouteError,
  })
  t.throws(() => table.find({ method: 'HEAD', path: '/x' }, 'h'), { code: 'HOMING_HTTP_NO_SUCH_ROUTE' })
})

t.test('a path has a route for labels, whatever the method', async t => {
  t.equal(table.at('/models/a')?.path, '/models/*')
  t.equal(table.at('/nothing'), undefined)
})
