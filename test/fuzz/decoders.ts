/** Every reader of what others have written; decoders.test.ts feeds them, and finds one that is missing. */

import { ADDRESS_FORMS } from './address-forms.ts'
import { BODY_DECODERS } from './body-decoders.ts'
import type { Decoder } from './decoder.ts'
import { FILE_DECODERS } from './file-decoders.ts'
import { WIRE_DECODERS } from './wire-decoders.ts'

export const DECODERS: readonly Decoder[] = [
  ...WIRE_DECODERS,
  ...BODY_DECODERS,
  ...FILE_DECODERS,
  ...ADDRESS_FORMS,
]
