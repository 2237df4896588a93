/**
 * The settings of `homing picker`: those of the router, with other defaults. A picker must choose as a router
 * with the same options would, so its options, variables and rules are the router's own.
 */

import type { Command, RuleFacts } from './descriptor.ts'
import { namesWorkers } from './router/discovery-settings.ts'
import { faultOfNoFrontend, type RouterSettings, routerCommand } from './router-command.ts'

const PICKER_PORT = 9002
const PICKER_HEALTH_PORT = 9003
/** What the protocol wants for a request that is dropped because of load. */
const TOO_MANY_REQUESTS = 429

const DEFAULTS: Partial<Record<keyof RouterSettings, unknown>> = {
  pickerPort: PICKER_PORT,
  pickerHealthPort: PICKER_HEALTH_PORT,
  frontend: false,
  overloadStatus: TOO_MANY_REQUESTS,
}

/** `homing picker`. */
export const pickerCommand: typeof routerCommand = {
  ...routerCommand,
  name: 'picker',
  summary:
    'Chooses the worker of each request for an Envoy or a gateway of the Gateway API inference extension, which sends it there itself.',
  // The types of the settings are the router's: only values of defaults differ.
  settings: routerCommand.settings.map(setting =>
    setting.key in DEFAULTS ? { ...setting, default: DEFAULTS[setting.key] } : setting,
  ) as unknown as Command<typeof routerCommand.settings>['settings'],
  rules: [faultOfNoWorkers, ...(routerCommand.rules ?? []).filter(rule => rule !== faultOfNoFrontend)],
  examples: [
    {
      does: 'Two engines behind an Envoy that asks at port 9002 (docs/endpoint-picker.md has its configuration):',
      line: 'homing picker --worker http://10.0.0.1:8000 --worker http://10.0.0.2:8000',
    },
  ],
}

function faultOfNoWorkers({ settings }: RuleFacts<RouterSettings>): string | undefined {
  return namesWorkers(settings)
    ? undefined
    : 'no worker is named to which an Envoy could send requests: give --worker, --workers-file, --worker-namespace, or --discovery-backend kubernetes or dns'
}
