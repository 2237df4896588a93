/** The error of an invalid layout: a mistake in a definition, so it is thrown when its module loads. */

import { HomingError } from '@homing/errors'

/** The description of a layout is not one; the definition that holds it is refused. */
export class LayoutError extends HomingError {
  readonly code = 'HOMING_ACTOR_LAYOUT'

  /** `field` is the path to it, dotted, or '' for the variant itself; `given` what stands there; `right` what may. */
  constructor(type: string, field: string, given: string, right: string) {
    const what = field === '' ? `'${type}'` : `field '${field}' of '${type}'`
    super(`cannot lay out ${what} as ${given}: ${right}`, { type, field, given })
  }
}
