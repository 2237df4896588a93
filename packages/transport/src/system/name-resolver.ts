/**
 * Name resolver: asks DNS servers itself, with Node's own client, so that a name is never taken from a cache
 * or a hosts file of this machine. No search domains: a name is asked as it is given.
 *
 * Bounds  a question has QUESTION_MS_MAX and QUESTION_TRIES for each server.
 */

import { NODATA, NOTFOUND, promises } from 'node:dns'
import { NameError } from '../errors.ts'
import type { NameAddress, NameResolver } from '../name-types.ts'

const QUESTION_MS_MAX = 2000
const QUESTION_TRIES = 2
/** The name is not there, or has no record of this type. */
const ABSENT: ReadonlySet<unknown> = new Set([NOTFOUND, NODATA])

/** Throws EndpointError's cause, a TypeError of Node, for a server that is no address. */
export function systemNameResolver(servers: readonly string[]): NameResolver {
  const resolver = new promises.Resolver({ timeout: QUESTION_MS_MAX, tries: QUESTION_TRIES })
  if (servers.length > 0) resolver.setServers(servers)
  const ask = async <T>(name: string, question: () => Promise<T>): Promise<T> => {
    try {
      return await question()
    } catch (thrown) {
      const { code = 'unknown error' } = thrown as NodeJS.ErrnoException
      const isAbsent = ABSENT.has(code)
      throw new NameError(
        name,
        isAbsent ? 'there is no such record' : `no server answers (${code})`,
        isAbsent,
      )
    }
  }
  return {
    async addresses(name) {
      const found = await ask(name, () => resolver.resolve4(name, { ttl: true })).catch(async error => {
        if (!(error instanceof NameError && error.isAbsent)) throw error
        return ask(name, () => resolver.resolve6(name, { ttl: true }))
      })
      return found.map(({ address, ttl }): NameAddress => ({ address, ttlSeconds: ttl }))
    },
    async targets(name) {
      const found = await ask(name, () => resolver.resolveSrv(name))
      const first = Math.min(...found.map(({ priority }) => priority))
      return found.flatMap(({ name: target, port, priority }) =>
        priority === first ? [{ name: target, port }] : [],
      )
    },
    close: () => resolver.cancel(),
  }
}
