/**
 * The oldest Node that this package runs on, checked before anything else of it is evaluated: an older one
 * would fail on the first function that it lacks. Every entry of the package imports this first.
 */

/** As in `engines` of package.json. */
export const NODE_MIN = '20.19'

/** Why `version` (as in process.version) is too old, as a sentence; undefined: it is not. */
export function nodeFault(version: string): string | undefined {
  const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number)
  const [majorMin = 0, minorMin = 0] = NODE_MIN.split('.').map(Number)
  if (major > majorMin || (major === majorMin && minor >= minorMin)) return undefined
  return `cannot run @homing/actor on Node ${version}: it needs Node ${NODE_MIN} or later`
}

const fault = nodeFault(process.version)
if (fault !== undefined) throw new Error(fault)
