/**
 * The settings of `homing slots`.
 *
 * Source   names: the options of the router for the same things; the bounds are ours.
 */

import type { Command, RuleFacts, SettingDescriptor, SettingsOf } from './descriptor.ts'
import { faultOfOther, faultOfOwnEndpoint } from './router/replica-settings.ts'
import { bookingSettings, listeningSettings, loggingSettings } from './service-settings.ts'
import { faultOfBodies, shared } from './shared-settings.ts'
import { HOUR_MS, SECOND_MS } from './units.ts'

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

  {
    key: 'replicaEndpoint',
    name: 'replica-endpoint',
    group: 'Replicas',
    kind: 'text',
    placeholder: 'ENDPOINT',
    default: undefined,
    unsetMeans: 'this one is alone',
    check: faultOfOwnEndpoint,
    env: 'HOMING_SLOTS_REPLICA_ENDPOINT',
    help: 'Endpoint such as tcp://*:5801 on which other slot trackers hear of the requests that are added here; it answers their questions on the port behind it.',
  },
  {
    key: 'replicas',
    name: 'replica-peer',
    group: 'Replicas',
    kind: 'list',
    placeholder: 'ENDPOINT',
    separator: 'comma or space',
    unsetMeans: 'none: they are registered over HTTP',
    check: faultOfOther,
    env: 'HOMING_SLOTS_REPLICA_PEERS',
    help: 'Endpoint of another slot tracker, such as tcp://10.0.0.2:5801, as its --replica-endpoint says; give it once for each. Each must have this one as a peer, too.',
  },
  {
    key: 'replicaDelayMs',
    name: 'replica-delay',
    group: 'Replicas',
    kind: 'duration',
    default: 2,
    min: 0,
    max: SECOND_MS,
    env: 'HOMING_SLOTS_REPLICA_DELAY',
    help: 'What is added after a pause is told at once; what follows is gathered for so long.',
  },
  {
    key: 'replicaExpiryMs',
    name: 'replica-expiry',
    group: 'Replicas',
    kind: 'duration',
    default: 3 * SECOND_MS,
    min: 100,
    max: HOUR_MS,
    env: 'HOMING_SLOTS_REPLICA_EXPIRY',
    help: 'How long the requests of a slot tracker count that cannot be heard any more. One that ends in good order is forgotten at once.',
  },

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

function faultOfLonelyPeers({ settings }: RuleFacts<SlotsSettings>): string | undefined {
  const { replicas, replicaEndpoint } = settings
  if (replicas.length === 0 || replicaEndpoint !== undefined) return undefined
  return '--replica-peer needs --replica-endpoint, on which the peer hears of what is added here, such as tcp://*:5801'
}
