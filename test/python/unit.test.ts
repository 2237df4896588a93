/** The unit tests of the Python client, by its own test runner. */

import t from 'tap'
import { found, packagedPython, plainPython, runPython, skipOf } from './interpreter.ts'

const python = plainPython()
t.test('the unit tests of the Python client', { skip: skipOf(python), timeout: 300_000 }, async t => {
  const packaged = packagedPython()
  const ours = found(typeof packaged === 'string' ? python : packaged)
  const { exitCode, stderr } = await runPython(t, ours, ['-m', 'unittest', 'discover', '-s', 'tests', '-v'])
  t.equal(exitCode, 0, stderr)
  t.match(stderr, /^Ran [1-9]\d* tests/m)
  if (typeof packaged === 'string') t.pass('with pyzmq and msgpack', { skip: packaged })
})
