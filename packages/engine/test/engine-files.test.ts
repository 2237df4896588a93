/** Files that an engine is given: its key, its certificate and the private key of that. */

import { join } from 'node:path'
import { NO_OPENSSL, selfSigned } from '@homing/transport/testing'
import t from 'tap'
import { readEngineKey, readEngineTls } from '../src/engine-files.ts'
import { DEFAULT_ENGINE_SETTINGS, engineSettings } from '../src/index.ts'

const KEY = 'sk-0a1b2c3d'
const skip = NO_OPENSSL
const code = 'HOMING_ENGINE_INVALID_SETTINGS'

t.test('a key is read from its file, and a file that holds none is refused without repeating it', async t => {
  const folder = t.testdir({ key: `${KEY}\n`, spaces: `${KEY} b`, lines: `${KEY}\n${KEY}`, empty: '' })
  const keyOf = (name: string) =>
    readEngineKey({ ...DEFAULT_ENGINE_SETTINGS, apiKeyFile: join(folder, name) })
  t.equal(keyOf('key'), KEY)
  t.equal(readEngineKey({ ...DEFAULT_ENGINE_SETTINGS, apiKey: KEY }), KEY)
  t.throws(() => keyOf('none'), { code, message: /--api-key-file ".*none" cannot be read: ENOENT/ })
  for (const name of ['spaces', 'lines', 'empty']) {
    try {
      keyOf(name)
      t.fail(name)
    } catch (thrown) {
      t.match(thrown, { code, message: /must hold a key alone/ }, name)
      t.notOk((thrown as Error).message.includes(KEY), name)
    }
  }
  t.throws(() => engineSettings({ apiKey: KEY, apiKeyFile: 'key' }), { code, message: /use one of them/ })
})

t.test('certificate and key go together', { skip }, async t => {
  const folder = t.testdir({ text: 'nothing' })
  const at = (name: string) => join(folder, name)
  for (const name of ['one', 'other']) selfSigned(folder, name)
  const tlsOf = (certificate: string, key: string) =>
    readEngineTls({ ...DEFAULT_ENGINE_SETTINGS, tlsCertificateFile: at(certificate), tlsKeyFile: at(key) })
  t.equal(readEngineTls(DEFAULT_ENGINE_SETTINGS), undefined)
  t.match(tlsOf('one.pem', 'one.key'), { certificate: /BEGIN CERTIFICATE/, key: /BEGIN PRIVATE KEY/ })
  t.throws(() => tlsOf('none', 'one.key'), { code, message: /--tls-cert ".*none" cannot be read: ENOENT/ })
  t.throws(() => tlsOf('text', 'one.key'), { code, message: /is no certificate in PEM/ })
  t.throws(() => tlsOf('one.pem', 'other.key'), {
    code,
    message: /is not the private key of that certificate/,
  })
  t.throws(() => engineSettings({ tlsCertificateFile: 'one.pem' }), { code, message: /go together/ })
})
