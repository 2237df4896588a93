/**
 * Workload: the requests of a cell, as data that a thread can open: a trace file by its path and content, the
 * files of a decision log likewise, or a generator.
 */

import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { basename } from 'node:path'
import {
  type GeneratorSpec,
  generatedLoop,
  generatedRequests,
  openTrace,
  parseGenerator,
  readDecisionLog,
  type TraceRequest,
  type TraceSource,
  UnreadableTraceError,
} from '@homing/trace'
import type { CellSpec, ClosedLoop } from './cell-types.ts'
import { logTrace } from './log-fit.ts'

export type Workload =
  | {
      readonly kind: 'file'
      /** As it stands in tables. */
      readonly name: string
      readonly path: string
      /** Of the bytes of the file, in hexadecimal. */
      readonly sha256: string
      /** The first so many requests; undefined: all. */
      readonly requestsMax?: number
    }
  | {
      readonly kind: 'log'
      readonly name: string
      /** Files of one decision log, in any order. */
      readonly paths: readonly string[]
      /** Of the bytes of each file. */
      readonly sha256: readonly string[]
      readonly requestsMax?: number
    }
  | {
      readonly kind: 'generator'
      readonly name: string
      readonly generator: GeneratorSpec
    }

const GENERATOR_PREFIX = 'generator:'

/** Reads FILE or generator:NAME. Throws BadGeneratorError, and what reading files throws. */
export async function parseWorkload(text: string, requestsMax?: number): Promise<Workload> {
  if (text.startsWith(GENERATOR_PREFIX)) {
    const name = text.slice(GENERATOR_PREFIX.length)
    const generator = parseGenerator(name)
    const requests = Math.min(generator.requests, requestsMax ?? generator.requests)
    return { kind: 'generator', name, generator: { ...generator, requests } }
  }
  const name = nameOf(text)
  const sha256 = await fileHash(text)
  return { kind: 'file', name, path: text, sha256, ...(requestsMax === undefined ? {} : { requestsMax }) }
}

/** The files of a decision log as one workload. Throws what reading files throws. */
export async function logWorkload(paths: readonly string[], requestsMax?: number): Promise<Workload> {
  const sha256: string[] = []
  for (const path of paths) sha256.push(await fileHash(path))
  const name = nameOf(paths[0]!)
  return { kind: 'log', name, paths, sha256, ...(requestsMax === undefined ? {} : { requestsMax }) }
}

function nameOf(path: string): string {
  return basename(path)
    .replace(/\.gz$/, '')
    .replace(/\.jsonl$/, '')
    .replace(/_trace$/, '')
    .replace(/^mooncake_/, '')
}

/** What identifies a workload, independent of its name and place. */
export function workloadIdentity(workload: Workload): object {
  return workload.kind !== 'generator'
    ? { sha256: workload.sha256, requestsMax: workload.requestsMax ?? null }
    : { generator: workload.generator }
}

/** The requests for one run of `spec`. */
export function openWorkload(workload: Workload, spec: CellSpec): TraceSource | ClosedLoop {
  if (workload.kind === 'file') {
    const source = notEmpty(openTrace(workload.path), workload.path)
    return workload.requestsMax === undefined ? source : firstOf(source, workload.requestsMax)
  }
  if (workload.kind === 'log') {
    const source = requestsOfLog(workload.paths)
    return workload.requestsMax === undefined ? source : firstOf(source, workload.requestsMax)
  }
  const { generator } = workload
  return generator.loop === 'closed'
    ? generatedLoop(generator, spec.seed, spec.speed * spec.copies)
    : generatedRequests(generator, spec.seed)
}

/**
 * Timestamps of the Mooncake conversation trace are multiples of this, or 1 ms less: 5999 stands beside
 * 27000.
 */
const BIN_MS = 3000
const BIN_ROUNDING_MS = 1
const BIN_SAMPLE = 200

/**
 * 3 s if the first timestamps are all multiples of 3 s, or 1 ms less, with several requests each; 0
 * otherwise.
 */
export async function detectBinMs(workload: Workload): Promise<number> {
  // A log has the times of arrivals.
  if (workload.kind !== 'file') return 0
  const times: number[] = []
  for await (const { timestampMs } of openTrace(workload.path)) {
    if ((timestampMs + BIN_ROUNDING_MS) % BIN_MS > BIN_ROUNDING_MS) return 0
    times.push(timestampMs)
    if (times.length === BIN_SAMPLE) break
  }
  return new Set(times).size < times.length / 2 ? BIN_MS : 0
}

function requestsOfLog(paths: readonly string[]): TraceSource {
  return {
    async *[Symbol.asyncIterator]() {
      yield* logTrace(await readDecisionLog(paths)).requests
    },
  }
}

/** Without any request every figure would be 0, which looks like a very good one. */
function notEmpty(source: AsyncIterable<TraceRequest>, path: string): TraceSource {
  return {
    async *[Symbol.asyncIterator]() {
      let isEmpty = true
      for await (const request of source) {
        isEmpty = false
        yield request
      }
      if (isEmpty) throw new UnreadableTraceError(path, 'there is no request in it')
    },
  }
}

function firstOf(source: TraceSource, count: number): TraceSource {
  return {
    async *[Symbol.asyncIterator]() {
      let taken = 0
      for await (const request of source) {
        if (taken++ === count) return
        yield request
      }
    },
  }
}

async function fileHash(path: string): Promise<string> {
  const hash = createHash('sha256')
  try {
    for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer)
  } catch (thrown) {
    throw new UnreadableTraceError(path, (thrown as Error).message, thrown)
  }
  return hash.digest('hex')
}
