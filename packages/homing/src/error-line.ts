/** What a person is told of an error that ended a command: what, why, what to do, and the code for docs/errors.md. */

import type { RouterError } from '@homing/errors'

/** One line. The error may come from another thread: its code counts, not its class. */
export function errorLine({ code, message, details }: RouterError): string {
  const advice = code === 'HOMING_TRANSPORT_LISTEN' ? adviceOfListening(details) : ''
  return `homing: ${message}${advice} [${code}]`
}

function adviceOfListening({ endpoint, reason }: RouterError['details']): string {
  const options = String(endpoint).startsWith('tcp:') ? '--events-port or --replay-port' : '--port'
  if (/EADDRINUSE/.test(String(reason))) {
    return `; choose another with ${options} (0: a free one), or end what holds it`
  }
  if (/EACCES/.test(String(reason))) return `; choose one above 1023 with ${options}`
  if (/EADDRNOTAVAIL|ENOTFOUND/.test(String(reason))) return '; choose an address of this machine with --host'
  return ''
}
