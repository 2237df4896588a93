/** Local faults: failures that are not the server's fault. */

import t from 'tap'
import { isLocalFault } from '../src/local-faults.ts'

const fault = (code: string): Error => Object.assign(new Error(code), { code })
/**
 * As Node reports a host with several addresses of which none could be connected to: its code is that of the
 * first.
 */
const several = (...codes: string[]): Error =>
  Object.assign(new AggregateError(codes.map(fault)), { code: codes[0] })

t.test('a connection fails for want of something here only where every address did', async t => {
  for (const [error, isLocal] of [
    [fault('EMFILE'), true],
    [fault('ECONNREFUSED'), false],
    [several('EMFILE', 'EMFILE'), true],
    [several('EADDRNOTAVAIL', 'ECONNREFUSED'), false],
    [several('ECONNREFUSED', 'ECONNREFUSED'), false],
    ['EMFILE', false],
  ] as const) {
    t.equal(isLocalFault(error), isLocal, String(error))
  }
})
