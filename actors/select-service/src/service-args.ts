/** Arguments of the selection service. */

import type { SelectSettings } from '@homing/config'
import type { JsonServiceArgs } from '@homing/http'
import type { CustomSelection } from '@homing/selection'

export interface SelectServiceArgs extends JsonServiceArgs {
  readonly settings: SelectSettings
  /** Replaces the policy; undefined: the policy selects. */
  readonly customSelection: CustomSelection | undefined
  /** The pool whose threads `<pool>-0 …` host indexers and listeners; default 'events'. */
  readonly eventPool?: string
}
