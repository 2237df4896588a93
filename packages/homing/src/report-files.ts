/** Files of reports: looked at before hours of work, written after them. */

import { accessSync, closeSync, constants, existsSync, openSync, writeFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { UnwritableReportError } from '@homing/simulate/report'

/** Throws UnwritableReportError. */
export function checkWritable(path: string): void {
  try {
    if (existsSync(path)) closeSync(openSync(path, 'a'))
    else accessSync(dirname(resolve(path)), constants.W_OK)
  } catch (thrown) {
    throw new UnwritableReportError(path, thrown as Error)
  }
}

/** Throws UnwritableReportError. */
export function writeReport(path: string, text: string): void {
  try {
    writeFileSync(path, text)
  } catch (thrown) {
    throw new UnwritableReportError(path, thrown as Error)
  }
}
