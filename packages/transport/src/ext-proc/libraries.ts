/** The libraries that ext_proc is spoken with: optional, and loaded where they are needed. */

import type * as grpc from '@grpc/grpc-js'
import { NotInstalledError } from '../errors.ts'
import { EXT_PROC_PACKAGES } from './installed.ts'
import type { ExtProcSchema } from './schema.ts'

export type Grpc = typeof grpc

export interface ExtProcLibraries {
  readonly grpc: Grpc
  readonly schema: ExtProcSchema
}

/** Rejects with NotInstalledError. */
export async function loadExtProc(): Promise<ExtProcLibraries> {
  try {
    return await load()
  } catch (thrown) {
    throw new NotInstalledError('listen for ext_proc', EXT_PROC_PACKAGES, thrown)
  }
}

async function load(): Promise<ExtProcLibraries> {
  const { loadSchema } = await import('./schema.ts')
  const [library, schema] = await Promise.all([import('@grpc/grpc-js'), loadSchema()])
  return { grpc: library, schema }
}
