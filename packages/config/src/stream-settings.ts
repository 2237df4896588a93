/** Settings of every command that writes or follows KV events in a stream at the NATS broker. */

import { GIB, HOUR_MS, MIB, SECOND_MS } from './units.ts'

/** A command adds its own variable and help to `durableKvEvents`. */
export const streamSettings = {
  durableKvEvents: {
    key: 'durableKvEvents',
    name: 'router-durable-kv-events',
    kind: 'flag',
    default: false,
    aliases: ['durable-kv-events'],
  },
  namespace: {
    key: 'streamNamespace',
    name: 'namespace',
    kind: 'text',
    placeholder: 'NAME',
    default: 'default',
    // Not the function itself: declarations of other packages would have to name it.
    check: (text: string): string | undefined => faultOfNamespace(text),
    help: 'With --router-durable-kv-events: which events belong together at a broker; the stream is homing-kv-NAME. Routers, sidecars and engines of one fleet have the same name. A new name is a clean slate, which nothing of another fleet can disturb.',
  },
  retentionMs: {
    key: 'streamRetentionMs',
    name: 'kv-events-retention',
    kind: 'duration',
    default: HOUR_MS,
    min: SECOND_MS,
    max: 720 * HOUR_MS,
    help: 'With --router-durable-kv-events: how long the stream keeps events. The first program that uses it makes the stream; one that is there keeps its own limits, which is logged.',
  },
  bytesMax: {
    key: 'streamBytesMax',
    name: 'kv-events-bytes',
    kind: 'size',
    default: GIB,
    min: MIB,
    max: 1024 * GIB,
    help: 'With --router-durable-kv-events: most bytes of events in the stream; the oldest go first. They are on the disk of the broker.',
  },
} as const

/** Streams and parts of subjects have no dots. A dot is not replaced: the result may name another fleet. */
function faultOfNamespace(text: string): string | undefined {
  if (/^[A-Za-z0-9_-]{1,64}$/.test(text)) return undefined
  const why = text.includes('.') ? ' (a stream has no dots in its name)' : ''
  return `is not 1 to 64 letters, digits, '-' and '_'${why}`
}

export interface StreamSettings {
  readonly durableKvEvents: boolean
  readonly streamNamespace: string
  readonly streamRetentionMs: number
  readonly streamBytesMax: number
}

/** Undefined: events are in no stream. */
export function streamOf({
  durableKvEvents,
  streamNamespace,
  streamRetentionMs,
  streamBytesMax,
}: StreamSettings) {
  if (!durableKvEvents) return undefined
  return { namespace: streamNamespace, retentionMs: streamRetentionMs, bytesMax: streamBytesMax }
}
