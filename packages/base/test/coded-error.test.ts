import t from 'tap'
import { CodedError, fromErrorRecord, toErrorRecord, UNEXPECTED_CODE } from '../src/index.ts'

class NoSeatError extends CodedError {
  readonly code = 'HOMING_TEST_NO_SEAT'
}

t.test('an error keeps code, message and details across structured clone', async t => {
  const record = structuredClone(toErrorRecord(new NoSeatError('cannot sit: row 7 is full', { row: 7 })))
  const arrived = fromErrorRecord(record)
  t.ok(arrived instanceof CodedError)
  t.equal(arrived.code, 'HOMING_TEST_NO_SEAT')
  t.equal(arrived.message, 'cannot sit: row 7 is full')
  t.strictSame(arrived.details, { row: 7 })
})

t.test('anything thrown has a record', async t => {
  for (const thrown of [new TypeError('x'), 'x', undefined, null, 7]) {
    t.equal(toErrorRecord(thrown).code, UNEXPECTED_CODE)
  }
})
