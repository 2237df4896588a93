/** Settings of `homing picker`, and those of the router that an Envoy asks. */

import t from 'tap'
import { parseSettings, pickerCommand, routerCommand } from '../src/index.ts'

const WORKER = ['--worker', 'http://10.0.0.1:8000']
const faults = (command: typeof routerCommand, argv: readonly string[]): readonly string[] => {
  try {
    parseSettings(command, argv, {})
    return []
  } catch (thrown) {
    return (thrown as { readonly faults: readonly string[] }).faults
  }
}

t.test('a picker is a router with other defaults', async t => {
  const { settings } = parseSettings(pickerCommand, WORKER, {})
  t.match(settings, {
    pickerPort: 9002,
    pickerHealthPort: 9003,
    pickerTls: 'self-signed',
    pickerFallbacks: 1,
    frontend: false,
    overloadStatus: 429,
    port: 8000,
  })
  const router = parseSettings(routerCommand, WORKER, {}).settings
  const { pickerPort, pickerHealthPort, frontend, overloadStatus } = router
  t.strictSame({ ...settings, pickerPort, pickerHealthPort, frontend, overloadStatus }, router)
})

t.test('a picker finds its workers wherever a router does', async t => {
  for (const argv of [
    ['--discovery-backend', 'kubernetes', '--kubernetes-service', 'vllm'],
    ['--discovery-backend', 'dns', '--dns-name', 'http://vllm:8000'],
    ['--workers-file', 'workers.yaml'],
  ])
    t.strictSame(faults(pickerCommand, argv), [], argv.join(' '))
})

t.test('what cannot be is said with what would be right', async t => {
  t.match(faults(pickerCommand, []), [/^no worker is named .* give --worker, .* or --discovery-backend/])
  const cases: readonly (readonly [argv: readonly string[], fault: RegExp])[] = [
    [['--picker-health-port', '9003'], /^--picker-health-port has no effect without --picker-port: give it/],
    [['--picker-tls', 'off'], /^--picker-tls has no effect without --picker-port/],
    [['--picker-port', '9002', '--picker-tls', 'files'], /needs --tls-cert and --tls-key/],
    [['--picker-port', '8000'], /^--picker-port 8000 is the same as --port: choose another/],
    [['--picker-port', '9002', '--picker-health-port', '9002'], /is the same as/],
    [['--picker-port', '0', '--gateway-threads', '2'], /share one port/],
    [['--picker-port', '9002', '--picker-fallbacks', '17'], /out of range 0 … 16/],
  ]
  for (const [argv, fault] of cases)
    t.match(faults(routerCommand, [...WORKER, ...argv]), [fault], argv.join(' '))
  t.strictSame(faults(routerCommand, [...WORKER, '--picker-port', '0', '--picker-health-port', '0']), [])
})
