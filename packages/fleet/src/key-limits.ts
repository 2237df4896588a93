/**
 * Key limits: which keys a worker may name that was not named by the operator.
 *
 * The key of a worker is sent to the host of its URL. So a caller of the API that may name any file or
 * variable could have each one-line file of the machine sent to a host of its own.
 *
 *   the command line, the workers file     any: they are the operator's
 *   POST /workers                          a file in --worker-key-dir, a variable of --worker-key-env-prefix
 *   a registration at the broker           none
 */

import { resolve, sep } from 'node:path'
import { InvalidWorkerError } from './errors.ts'
import type { WorkerSpec } from './worker-spec.ts'

export interface KeyLimits {
  /** Undefined: no file may be named. */
  readonly directory?: string | undefined
  /** What names of variables begin with; undefined: none may be named. */
  readonly envPrefix?: string | undefined
}

/** Of workers that name no key. */
export const NO_KEYS: KeyLimits = {}

/**
 * The worker with its key within the limits. No file is looked at, so an answer does not tell whether one
 * exists; links are followed whenever it is read. Throws InvalidWorkerError.
 */
export function withinLimits(spec: WorkerSpec, { directory, envPrefix }: KeyLimits): WorkerSpec {
  const { key, id } = spec
  const refuse = (name: string, option: string): never => {
    throw new InvalidWorkerError(
      id,
      `${name} is not taken from this caller: the router takes it from its command line, its workers file, or within ${option}`,
    )
  }
  if (key === undefined) return spec
  if ('env' in key) {
    const isWithin = envPrefix !== undefined && envPrefix !== '' && key.env.startsWith(envPrefix)
    return isWithin ? spec : refuse('key_env', '--worker-key-env-prefix')
  }
  if (directory === undefined || !isBelow(key.file, directory)) return refuse('key_file', '--worker-key-dir')
  return { ...spec, key: { file: key.file, within: directory } }
}

/** As the paths are written: links are not followed. */
export function isBelow(path: string, directory: string): boolean {
  const from = resolve(directory)
  return resolve(path).startsWith(from.endsWith(sep) ? from : `${from}${sep}`)
}
