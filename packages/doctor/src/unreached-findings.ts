/** Why a worker cannot be reached, and what to do about it: from the answer to the first question. */

import type { WorkerSpec } from '@homing/fleet'
import type { DiagnoseOptions } from './diagnose-options.ts'
import { type Finding, fault } from './diagnosis.ts'
import { isRefused } from './port-owner.ts'
import type { AskedHttp } from './recorded-http.ts'
import { cut, reasonOf } from './step-texts.ts'

/** `reason`: the reason of the probe. */
export function unreachedFinding(
  { id, origin, key }: WorkerSpec,
  first: AskedHttp | undefined,
  reason: string,
  { timeoutMs, engineKey }: Pick<DiagnoseOptions, 'timeoutMs' | 'engineKey'>,
): Finding {
  if (first === undefined) {
    return fault(
      'answers',
      `it was not asked: ${reason}`,
      'correct what names the key: key_file, key_env or --engine-api-key-file',
    )
  }
  if (first.reply !== undefined) {
    return findingOfStatus(first.reply.status, reason, (key ?? engineKey) !== undefined)
  }
  const { hostname } = new URL(origin)
  const error = first.error!
  const why = cut(reasonOf(error))
  // For certificates, the probe's reason contains the advice.
  const [, advice] = reason.split(`${error.message}: `)
  if (advice !== undefined) return fault('answers', `no connection to ${id}: ${why}`, advice)
  switch (error.failure) {
    case 'connect': {
      if (isRefused(error)) {
        return fault('answers', `nothing listens at ${id}`, 'start the engine, or correct host and port')
      }
      if (/ENOTFOUND|EAI_AGAIN/.test(why)) {
        return fault('answers', `the name ${hostname} has no address`, 'correct it, or give the address')
      }
      return fault(
        'answers',
        `no connection to ${id}: ${why}`,
        `open ${id} in the firewall, or correct the host`,
      )
    }
    case 'timeout':
      return fault(
        'answers',
        `it takes the connection but does not answer GET /v1/models within ${timeoutMs} ms`,
        'wait until it has loaded its model, relieve it, or give a longer --timeout; if it is no engine, correct the port',
      )
    case 'protocol':
    case 'reset':
      return fault(
        'answers',
        `something else than HTTP is at ${id}: ${why}`,
        'give the port of its OpenAI routes, not that of its events; https:// for an engine with TLS, http:// for one without',
      )
    case 'local':
      return fault('answers', `this machine cannot ask: ${why}`, 'free what it lacks, and try again')
    default:
      return fault('answers', `GET /v1/models has no answer: ${why}`)
  }
}

function findingOfStatus(status: number, reason: string, hasKey: boolean): Finding {
  // The probe's advice is for a running router.
  const [said = '', advice] = reason.split(': ')
  if (status === 401 || status === 403) {
    return hasKey
      ? fault(
          'answers',
          `it does not accept the key that it is given: ${said}`,
          'give the key that it was started with (--api-key)',
        )
      : fault(
          'answers',
          `it wants an API key: ${said}`,
          'put the key that it was started with (--api-key) into a file, and give --engine-api-key-file FILE, or ?key_file=FILE in its URL',
        )
  }
  if (status >= 300 && status < 400) {
    return fault('answers', said, advice ?? 'give the URL of the engine itself: redirects are not followed')
  }
  if (status === 429 || status >= 500) {
    return fault(
      'answers',
      `it refuses requests: ${reason}`,
      'wait until it has loaded its model, or relieve it',
    )
  }
  return fault(
    'answers',
    `an HTTP server is there, but no OpenAI engine: ${reason}`,
    'give the port of the engine itself; its routes begin at the root',
  )
}
