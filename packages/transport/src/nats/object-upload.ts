/**
 * Object upload: puts an object into an object store of JetStream (ADR-20), so that the nats package reads
 * it. The package's own upload publishes all chunks in one turn, and each must be answered within the time of
 * one.
 *
 *   chunks   $O.BUCKET.C.ID, OBJECT_CHUNK_BYTES each   before the entry: an object is there whole, or not
 *   entry    $O.BUCKET.M.NAME in base64                name, ID, size, digest
 *
 * Bounds   CHUNKS_UNDER_WAY_MAX chunks are not answered yet, each for CHUNK_MS_MAX; the whole, UPLOAD_MS_MAX.
 *          Between them other work of the thread has its turn.
 * Fails    what was stored until then is purged, if the broker can; the next `tidy` finds the rest.
 */

import { createHash } from 'node:crypto'
import { systemClock } from '@homing/base'
import type * as nats from 'nats'
import { ANSWER_MS_MAX } from './stream-errors.ts'

const OBJECT_CHUNK_BYTES = 128 * 1024
const CHUNKS_UNDER_WAY_MAX = 8
const CHUNK_MS_MAX = 10_000
const UPLOAD_MS_MAX = 300_000

export interface UploadOptions {
  readonly connection: nats.NatsConnection
  readonly bucket: string
  readonly name: string
  readonly description: string
  /** Of its chunks: letters and digits, no other object's. */
  readonly id: string
}

/** Rejects with what the nats package throws. */
export async function uploadObject(options: UploadOptions, bytes: Uint8Array): Promise<void> {
  const { connection, bucket, name, description, id } = options
  const client = connection.jetstream({ timeout: CHUNK_MS_MAX })
  const chunkBytes = Math.min(OBJECT_CHUNK_BYTES, connection.info?.max_payload ?? OBJECT_CHUNK_BYTES)
  const startedMs = systemClock.nowMs()
  const hash = createHash('sha256')
  try {
    for (let from = 0; from < bytes.length; ) {
      const stored: Promise<unknown>[] = []
      for (; from < bytes.length && stored.length < CHUNKS_UNDER_WAY_MAX; from += chunkBytes) {
        const chunk = bytes.subarray(from, from + chunkBytes)
        hash.update(chunk)
        stored.push(client.publish(chunkSubject(bucket, id), chunk))
      }
      await Promise.all(stored)
      if (systemClock.nowMs() - startedMs > UPLOAD_MS_MAX)
        throw new Error(`${from} of ${bytes.length} bytes were stored within ${UPLOAD_MS_MAX} ms`)
    }
    const entry = {
      ...{ name, description, bucket, nuid: id, options: { max_chunk_size: chunkBytes } },
      ...{ size: bytes.length, chunks: Math.ceil(bytes.length / chunkBytes), deleted: false },
      mtime: new Date(systemClock.wallMs()).toISOString(),
      digest: `SHA-256=${urlSafe(hash.digest('base64'))}`,
    }
    await client.publish(entrySubject(bucket, name), Buffer.from(JSON.stringify(entry)))
  } catch (error) {
    const manager = await connection.jetstreamManager({ checkAPI: false, timeout: ANSWER_MS_MAX })
    await manager.streams.purge(streamOfBucket(bucket), { filter: chunkSubject(bucket, id) }).catch(() => {})
    throw error
  }
}

export function streamOfBucket(bucket: string): string {
  return `OBJ_${bucket}`
}

export function chunkSubject(bucket: string, id: string): string {
  return `$O.${bucket}.C.${id}`
}

export function entrySubject(bucket: string, name: string): string {
  return `$O.${bucket}.M.${urlSafe(Buffer.from(name).toString('base64'))}`
}

function urlSafe(base64: string): string {
  return base64.replaceAll('+', '-').replaceAll('/', '_')
}
