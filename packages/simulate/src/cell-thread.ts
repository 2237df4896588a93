/**
 * The module that a thread of the sweep loads: the task, with a compile cache: loading then takes a
 * quarter of the time.
 */

import * as nodeModule from 'node:module'

// Node 20 has none.
nodeModule.enableCompileCache?.()

export const { runCellTask } = await import('./cell-task.ts')
