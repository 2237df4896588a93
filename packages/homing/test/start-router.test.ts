/**
 * The router embedded in a program: defaults of settings that it leaves out, and faults of those that it
 * names.
 */

import { SettingsError, startDemoFleet, startIndexer, startRouter } from 'homing'
import t from 'tap'

t.test('all faults of the settings are one error, and nothing is started', async t => {
  const started = startRouter({
    port: 70_000,
    // A program in JavaScript gets the faults that TypeScript would report.
    ...({ prot: 1, demoEngines: 2 } as object),
    workers: ['nowhere', 'http://127.0.0.1:1', 'http://localhost:1'],
  })
  const error = await started.then(
    () => t.fail('it started'),
    (thrown: unknown) => thrown,
  )
  t.type(error, SettingsError)
  t.match(error, { code: 'HOMING_CONFIG_BAD_SETTINGS' })
  t.strictSame((error as SettingsError).faults, [
    'prot: there is no such setting; did you mean port?',
    'port: 70000 is out of range 0 … 65535',
    'workers: "nowhere" is not a URL such as http://10.0.0.1:8001',
    'workers: "http://localhost:1": it is the worker "http://127.0.0.1:1" again: give it once',
    'demoEngines: it has no effect here; leave it out',
  ])
  await t.rejects(startRouter({ port: 0 }), {
    message: /^cannot start router: workers: the list is empty; .* startDemoFleet\(\)$/,
  })
  await t.rejects(startDemoFleet({ demoEngines: 0 }), { message: /demoEngines: 0 is out of range 1 … 32$/ })
  await t.rejects(startIndexer({ blockSizeTokens: 16, workers: ['7'] }), {
    message: /^cannot start indexer: workers: "7": it must be ID=ENDPOINT/,
  })
})

t.test('an indexer starts with what is given, and stops by itself in the time of its settings', async t => {
  const indexer = await startIndexer({ port: 0, host: '127.0.0.1', logLevel: 'error', threads: 1 })
  t.equal((await fetch(`${indexer.url}/health`)).status, 200)
  t.strictSame(await indexer.stop(), { cutRequests: 0, slowActors: [] })
})
