/** Fills a canvas and gives it away. */

import { defineActor, type Reply } from '@homing/actor'

export interface PaintMessage {
  readonly type: 'paint'
  readonly canvas: Uint8Array<ArrayBuffer>
  readonly colour: number
  readonly reply: Reply<Uint8Array<ArrayBuffer>>
}

export const painter = defineActor<PaintMessage>(
  import.meta.url,
  'painter',
)({
  setup: () => ({
    paint: ({ canvas, colour, reply }) => reply(canvas.fill(colour), { transfer: [canvas.buffer] }),
  }),
})
