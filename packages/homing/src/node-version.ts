/** The oldest Node that runs this. `engines` in package.json says the same, but npm only warns about it. */

const NODE_MIN = [20, 19] as const

/**
 * Why this version of Node cannot run homing; undefined when it can. `version` as in `process.versions.node`.
 */
export function faultOfNodeVersion(version: string): string | undefined {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  if (major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1])) return undefined
  return `cannot run on Node ${version}: Node ${NODE_MIN.join('.')} or later is needed, 24 is best (https://nodejs.org)`
}
