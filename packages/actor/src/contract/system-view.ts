/** The system as one of its own actors on main may see it. */

import { NotOnMainError } from '../values/errors.ts'
import { defineCapability } from './define.ts'
import type { SystemView } from './types.ts'

/**
 * What the threads and actors of the system do, for an actor that shows it. Throws NotOnMainError elsewhere
 * than on main.
 */
export const systemView = defineCapability<SystemView>({
  name: 'homing.systemView',
  create() {
    throw new NotOnMainError()
  },
})
