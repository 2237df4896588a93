/** Logins at a broker: what is warned of when they would go over the network as they are. */

import { join } from 'node:path'
import { setBrokerAccess } from '@homing/transport'
import t from 'tap'
import { openBrokerAccess } from '../src/broker-access.ts'

t.test('a password or token that could go in clear is warned of, without telling it', async t => {
  t.teardown(() => setBrokerAccess({}))
  const folder = t.testdir({
    password: 'me:s3cret\n',
    token: 's3cret\n',
    jwt: '-----BEGIN NATS USER JWT-----\nx\n------END NATS USER JWT------\n',
  })
  const warningsOf = async (file: string | undefined, natsServers: readonly string[]) => {
    const warnings: unknown[] = []
    const natsCredentialsFile = file === undefined ? undefined : join(folder, file)
    await openBrokerAccess({ natsServers, natsCredentialsFile, natsCaFile: undefined }, 'router', {
      warn: (...told: unknown[]) => void warnings.push(told),
    })
    return warnings
  }
  const away = ['nats://127.0.0.1:4222', 'nats://10.0.0.9:4222', 'nats://[fd00::9]']
  for (const file of ['password', 'token']) {
    const warnings = await warningsOf(file, away)
    t.match(warnings, [
      [
        { servers: ['10.0.0.9:4222', '[fd00::9]:4222'] },
        /could go over the network in clear.*--nats-ca-file/,
      ],
    ])
    t.notMatch(JSON.stringify(warnings), /s3cret/)
    for (const here of [[], ['nats://127.0.0.1:4222'], ['localhost'], ['nats://[::1]:4222'], ['127.1.2.3']])
      t.strictSame(await warningsOf(file, here), [], `${file} to ${here}`)
  }
  t.strictSame(await warningsOf('jwt', away), [], 'the seed signs, and is not sent')
  t.strictSame(await warningsOf(undefined, away), [])
})
