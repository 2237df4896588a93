/**
 * The module that a thread of the sweep loads: the task, with a compile cache: loading then takes a
 * quarter of the time.
 */

import { enableCompileCache } from 'node:module'

enableCompileCache()

export const { runCellTask } = await import('./cell-task.ts')
