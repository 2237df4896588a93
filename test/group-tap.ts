/** What a file of a group imports as 'tap', at `?file=POSITION`: the test that group.ts has opened for it. */

import type { Test } from 'tap'

const KEY = Symbol.for('homing.test.group')
const shared = globalThis as { [KEY]?: Map<number, Test> }
shared[KEY] ??= new Map()

/** One map for all positions, each of which is a module of its own. */
export const openTests: Map<number, Test> = shared[KEY]

export default openTests.get(Number(new URL(import.meta.url).searchParams.get('file')))
