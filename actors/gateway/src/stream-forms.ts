/**
 * StreamForms: which streams the router asks for usage on behalf of the client, and the form that each is
 * converted back to.
 *
 *   not known ──a stream sent as it is has ended──▶ known ──FORM_STREAMS_MAX streams, another epoch,──▶ not known
 *                                                           or a call that broke
 *
 * The form belongs to a worker key and a path without its query, because clients choose the query. The router
 * does not ask in the first stream to each, and learns the form from it: its prediction is not audited. The
 * form is learned again from time to time, because an engine may come back with other flags under the same
 * name.
 */

import { canAsk, type StreamForm } from '@homing/openai'
import type { Decision } from '@homing/placement'

/** One in so many streams is sent as it is. */
const FORM_STREAMS_MAX = 256
/** Worker keys that are remembered; of more, those learned first are forgotten. */
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
   * What to do with a stream that could be asked: ask, and bring it back to this form; or send it as it is,
   * and learn the form from it, or not.
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

  /** The engine may have gone. */
  forget({ worker }: Decision): void {
    this.#known.delete(worker)
  }
}

function withoutQuery(path: string): string {
  const queryAt = path.indexOf('?')
  return queryAt < 0 ? path : path.slice(0, queryAt)
}
