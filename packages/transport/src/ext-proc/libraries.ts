/** The libraries that ext_proc is spoken with: optional, and loaded where they are needed. */

import type * as grpc from '@grpc/grpc-js'
import { NotInstalledError } from '../errors.ts'
import type { ExtProcSchema } from './schema.ts'

export type Grpc = typeof grpc

export interface ExtProcLibraries {
  readonly grpc: Grpc
  readonly schema: ExtProcSchema
}

const PACKAGES = '@grpc/grpc-js protobufjs'

/** Undefined: they are installed; else what to do. Loads them. */
export async function faultOfExtProc(): Promise<string | undefined> {
  try {
    await load()
    return undefined
  } catch {
    return `needs packages that are not installed beside homing: npm install ${PACKAGES}`
  }
}

/** Rejects with NotInstalledError. */
export async function loadExtProc(): Promise<ExtProcLibraries> {
  try {
    return await load()
  } catch (thrown) {
    throw new NotInstalledError('listen for ext_proc', PACKAGES, thrown)
  }
}

async function load(): Promise<ExtProcLibraries> {
  const { loadSchema } = await import('./schema.ts')
  const [library, schema] = await Promise.all([import('@grpc/grpc-js'), loadSchema()])
  return { grpc: library, schema }
}
