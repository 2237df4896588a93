/**
 * How many requests the limit of open files of this process allows. Every socket is a file; when none are
 * left, clients are reset and workers cannot be reached, which is worse than refusing one request too many.
 */

import { readFileSync } from 'node:fs'
import type { Log } from '@homing/base'

export interface SocketNeeds {
  /** --max-open-requests. */
  readonly openRequestsMax: number
  /** Sockets of one open request: of its client, and of its worker where there is one. */
  readonly perRequest: number
  /** Engines that are probed and listened to. */
  readonly workers: number
}

/** Threads, logs, tokenizers. */
const FILES_OWN = 128
/** And clients that are refused or idle. */
const FILES_RESERVED = FILES_OWN + 128
/**
 * Questions of a probe, event and replay sockets of a few ranks; twice, where a demo engine is in this
 * process too.
 */
const FILES_PER_WORKER = 40

/**
 * As many requests as there are files for, at most `openRequestsMax`; at least half of what is not reserved
 * is for requests. Where that is less than `openRequestsMax`, the log says what to type.
 */
export function requestsWithinFiles(needs: SocketNeeds, log: Log, filesMax = openFilesMax()): number {
  const { openRequestsMax, perRequest, workers } = needs
  const reserved = FILES_RESERVED + FILES_PER_WORKER * workers
  const filesNeeded = reserved + openRequestsMax * perRequest
  if (filesMax === undefined || filesMax >= filesNeeded) return openRequestsMax
  const left = filesMax - FILES_RESERVED
  // Workers rarely need their share all at once: a router of many must not be left without requests for it.
  const lowered = Math.max(
    1,
    Math.floor((left - Math.min(FILES_PER_WORKER * workers, left / 2)) / perRequest),
  )
  log.warn(
    {
      openFilesMax: filesMax,
      openRequestsMax: lowered,
      insteadOf: openRequestsMax,
      advice: `ulimit -n ${filesNeeded}, or --max-open-requests ${lowered}`,
    },
    'too few open files are allowed for --max-open-requests; fewer requests are taken at one time',
  )
  return lowered
}

/**
 * As many connections as there are files for, at most `connectionsMax`; not fewer than requests are taken.
 * `needs.openRequestsMax` are those that are taken: each has a socket of its worker, too. Where it is less
 * than `connectionsMax`, the log says so.
 */
export function connectionsWithinFiles(
  connectionsMax: number,
  { openRequestsMax, perRequest, workers }: SocketNeeds,
  log: Log,
  filesMax = openFilesMax(),
): number {
  if (filesMax === undefined) return connectionsMax
  const left = filesMax - FILES_OWN
  const ofWorkers = Math.min(FILES_PER_WORKER * workers, left / 2) + openRequestsMax * (perRequest - 1)
  const room = Math.max(openRequestsMax, Math.floor(left - ofWorkers))
  if (room >= connectionsMax) return connectionsMax
  const fields = { openFilesMax: filesMax, connectionsMax: room, insteadOf: connectionsMax }
  log.info(fields, 'too few open files are allowed for --max-connections; fewer connections are taken')
  return room
}

/**
 * The limit of this process; undefined where it cannot be known. Node has raised it as far as it may already.
 */
export function openFilesMax(): number | undefined {
  const limit = limitInProc() ?? limitInReport()
  return limit === 'unlimited' ? undefined : Number(limit) || undefined
}

/** 'Max open files   1024   524288   files': the first is what counts. */
function limitInProc(): string | undefined {
  try {
    return /^Max open files\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
  } catch {
    return undefined // only Linux has it
  }
}

function limitInReport(): string | undefined {
  const report = process.report?.getReport() as
    | { readonly userLimits?: { readonly open_files?: { readonly soft?: string | number } } }
    | undefined
  return report?.userLimits?.open_files?.soft?.toString()
}
