/**
 * Worker place: host, port and path of an engine as one text, however its URL is written, and the number
 * that follows from it.
 */

import { createHash } from 'node:crypto'
import { hostName } from '@homing/transport'
import type { WorkerSpec } from './worker-spec.ts'

/** 'localhost' and '127.0.0.1' are one host, and with the same port and path one engine. */
export function placeOf({ id, origin }: Pick<WorkerSpec, 'id' | 'origin'>): string {
  const { hostname } = new URL(origin)
  return `${hostName(hostname)}${id.slice(hostname.length)}`
}

/**
 * A number that every router makes of the same place, whenever the worker joins it: the first 53 bits of its
 * SHA-256, so that it is a whole number of JSON. Two places have the same one in 1 of 10^16 cases.
 */
export function workerNumberAt(place: string): number {
  return Number(createHash('sha256').update(place).digest().readBigUInt64BE() >> 11n)
}
