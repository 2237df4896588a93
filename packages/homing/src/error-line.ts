/**
 * The line that a user sees when an error ends a command: what, why, what to do, and the code for
 * docs/errors.md.
 */

import type { CodedError } from '@homing/base'

/** One line. The error may come from another thread: its code counts, not its class. */
export function errorLine({ code, message, details }: CodedError): string {
  const advice = ADVICE[code]?.(details) ?? ''
  return `homing: ${message}${advice} [${code}]`
}

/** What to do, by code. */
const ADVICE: Readonly<Record<string, (details: CodedError['details']) => string>> = {
  HOMING_TRANSPORT_LISTEN: adviceOfListening,
  HOMING_LISTENER_CHECKPOINT_DIRECTORY: () =>
    '; give --checkpoint-dir a directory that this user can create and write to',
  HOMING_TRACKER_LEARNED_FILE: () =>
    '; give --router-learned-file the name of a file in a directory that this user can write to',
}

function adviceOfListening({ endpoint, reason, option = '--port' }: CodedError['details']): string {
  const options = String(endpoint).startsWith('tcp:') ? '--events-port or --replay-port' : option
  if (/EADDRINUSE/.test(String(reason))) {
    return `; choose another with ${options} (0: a free one), or end the process that holds it`
  }
  if (/EACCES/.test(String(reason))) return `; choose one above 1023 with ${options}`
  if (/EADDRNOTAVAIL|ENOTFOUND/.test(String(reason))) return '; choose an address of this machine with --host'
  return ''
}
