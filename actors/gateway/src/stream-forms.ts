/**
 * StreamForms: which streams the router asks for usage in the client's place, and the form to which each such
 * stream is converted back.
 *
 *   not known ──a stream that was sent unchanged has ended──▶ known
 *   known     ──FORM_STREAMS_MAX streams, a new epoch, or a broken call──▶ not known
 *
 * A form belongs to a worker key and a path without its query, because clients choose the query. The router
 * does not ask for usage in the first stream of each, and learns the form from that stream; its prediction is
 * not audited. The form is learned again from time to time, because an engine may restart with other flags
 * under the same name.
 */

import { canAsk, type StreamForm } from '@homing/openai'
import type { Decision } from '@homing/placement'

/** One in so many streams is sent unchanged, to learn the form. */
const FORM_STREAMS_MAX = 256
/** Worker keys that are remembered; beyond it the oldest are forgotten. */
const KEYS_MAX = 4096

interface KnownForm {
  readonly epoch: number
  readonly form: StreamForm
  streamsLeft: number
}

export class StreamForms {
  /** By worker key, then by path. */
  readonly #known = new Map<string, Map<string, KnownForm>>()

  /**
   * What to do with a stream that could be asked for usage. A form: ask, and convert back to this form.
   * 'learn': send it unchanged and learn the form from it. 'leave': send it unchanged.
   */
  next({ worker, epoch }: Decision, path: string): StreamForm | 'learn' | 'leave' {
    const known = this.#known.get(worker)?.get(withoutQuery(path))
    if (known === undefined || known.epoch !== epoch || known.streamsLeft === 0) return 'learn'
    known.streamsLeft--
    return canAsk(known.form) ? known.form : 'leave'
  }

  learned({ worker, epoch }: Decision, path: string, form: StreamForm): void {
    const paths = this.#known.get(worker) ?? new Map<string, KnownForm>()
    paths.set(withoutQuery(path), { epoch, form, streamsLeft: FORM_STREAMS_MAX })
    this.#known.set(worker, paths)
    if (this.#known.size <= KEYS_MAX) return
    for (const oldest of this.#known.keys()) {
      this.#known.delete(oldest)
      return
    }
  }

  /** Forgets a worker key whose engine may be gone. */
  forget({ worker }: Decision): void {
    this.#known.delete(worker)
  }
}

function withoutQuery(path: string): string {
  const queryAt = path.indexOf('?')
  return queryAt < 0 ? path : path.slice(0, queryAt)
}
