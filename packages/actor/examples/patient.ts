/** An actor that ends in every way. */

import { defineActor } from '@homing/actor'

export type PatientMessage = { readonly type: 'leave' } | { readonly type: 'fall' }

export const patient = defineActor<PatientMessage>(
  import.meta.url,
  'patient',
)({
  setup: ctx => ({
    leave: () => ctx.stop(),
    fall() {
      throw new Error('it fell')
    },
  }),
})
