/**
 * The settings of `homing slots`.
 *
 * Source   names: the options of the router for the same things; the bounds are ours.
 */

import type { Command, SettingDescriptor, SettingsOf } from './descriptor.ts'
import {
  bookingSettings,
  faultOfLonelyPeers,
  listeningSettings,
  loggingSettings,
  peerSettings,
} from './service-settings.ts'
import { faultOfBodies, shared } from './shared-settings.ts'

const NAMES = {
  variables: 'HOMING_SLOTS',
  noun: 'slot tracker',
  port: 8091,
  routes: '/add, /prefill_complete, /free and /potential_loads',
} as const

const slotsSettings = [
  ...listeningSettings(NAMES),

  {
    ...shared.workerSlotsMax,
    unit: 'ranks',
    env: 'HOMING_SLOTS_WORKER_SLOTS_MAX',
    help: 'Most ranks of workers that may be registered at one time, over all models and groups. A worker that finds no room is answered with 503.',
  },
  ...bookingSettings(NAMES),

  ...peerSettings(NAMES),
  ...loggingSettings(NAMES),
] as const satisfies readonly SettingDescriptor[]

/** The settings of `homing slots`: times in milliseconds, sizes in bytes. */
export type SlotsSettings = SettingsOf<typeof slotsSettings>

/** `homing slots`. */
export const slotsCommand: Command<typeof slotsSettings> = {
  name: 'slots',
  summary:
    'Runs the slot tracker alone, over HTTP: it knows the load of each worker from what callers tell it.',
  settings: slotsSettings,
  examples: [
    {
      does: 'A slot tracker on port 8091; workers are registered with POST /register:',
      line: 'homing slots',
    },
    {
      does: 'One of two that count what is added to either:',
      line: "homing slots --replica-endpoint 'tcp://*:5801' --replica-peer tcp://10.0.0.2:5801",
    },
  ],
  rules: [faultOfBodies, faultOfLonelyPeers],
}
