/**
 * Log files: the door to the files of a decision log.
 *
 * A process that was killed leaves half a line at most. It is cut off when the file is opened again, so that
 * what is appended begins a line. A file is only touched that is empty or begins as a decision log does.
 */

import type { Capability } from '@homing/actor'
import { DiskLineFile, diskMoves, type LineFiles } from '@homing/base'
import { beginsAsDecisionLog } from '@homing/trace'
import { DecisionLogFileError } from './errors.ts'

/** The first bytes of a file, which identify a decision log. */
const LOG_HEAD_BYTES = 32
/** Models, workers and the pattern of the traffic are in it. */
const MODE = 0o600

const diskFiles: LineFiles = {
  ...diskMoves,
  open: path => DiskLineFile.open(path, { mode: MODE, isOwn: true }, cutHalfLine),
}

/** Where a decision log is kept; tests keep it in memory. */
export const logFiles: Capability<LineFiles> = { name: 'decision log files', create: () => diskFiles }

/** Rejects with DecisionLogFileError if the file cannot be written. */
export async function prepareDecisionLog(path: string): Promise<void> {
  try {
    await (await diskFiles.open(path)).close()
  } catch (thrown) {
    throw new DecisionLogFileError(path, thrown instanceof Error ? thrown.message : String(thrown))
  }
}

async function cutHalfLine(file: DiskLineFile): Promise<void> {
  const head = Buffer.from(await file.head(LOG_HEAD_BYTES)).toString('latin1')
  if (!beginsAsDecisionLog(head))
    throw new Error('there is a file that is no decision log; name another, or move it away')
  const bytes = await file.wholeLineBytes()
  if (bytes < file.bytes) await file.cut?.(bytes)
}
