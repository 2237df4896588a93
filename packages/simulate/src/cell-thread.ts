/**
 * What a thread of the sweep loads: the task, with what was compiled before, which is a quarter of the time.
 */

import { enableCompileCache } from 'node:module'

enableCompileCache()

export const { runCellTask } = await import('./cell-task.ts')
