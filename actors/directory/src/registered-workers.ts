/**
 * Registered workers: workers that announce themselves at a broker, while they keep doing so.
 *
 *   present                    ─▶ added as by POST /workers; of several lives with one id, the last counts
 *   good-bye, or 5 s silence   ─▶ the life before it counts; without one the worker is removed, with all
 *                                 that was known of it
 *   no broker                  ─▶ workers stay, by their health; a worker that is not back RETURN_MS after
 *                                 the broker is back is removed
 *
 * A registration does not change a worker with the same id that the operator named. A worker that the
 * operator removes stays away until its process restarts, which gives it a new life.
 * Owns   which lives are present, which workers they brought, and which lives the operator has removed.
 * Bounds `workersMax` workers are here at one time, as many as there are worker slots; workers that the
 *        operator names take the slots of registered ones (worker-keys.ts). At most REFUSED_MAX removed lives
 *        are remembered; the oldest are forgotten.
 */

import type { ActorContext } from '@homing/actor'
import { NO_KEYS } from '@homing/fleet'
import { readRegistration, registrationEndpoint } from '@homing/publisher'
import { type AbsenceReason, type Closable, transportCapability } from '@homing/transport'
import type { FleetChanges } from './fleet-changes.ts'
import type { DirectoryMessage, KeptRegistrations } from './messages.ts'

export interface RegistrationArgs {
  /** Of the broker, 'host:port' each; or of etcd, 'http://host:port' each. */
  readonly servers: readonly string[]
  readonly namespace: string
}

/** The registration of one life. */
interface Word {
  readonly id: string
  readonly url: string
  /** False: not heard since the broker was away. */
  isConfirmed: boolean
}

/** All lives with one id. */
interface Registered {
  /** In the order in which they came. */
  readonly lives: Set<string>
  /** URL of the worker that they brought; undefined: it is the operator's, or cannot be added. */
  url: string | undefined
}

const RETURN_MS = 10_000
const FAULTS_TOLD_MAX = 100
const REFUSED_MAX = 4096

export class RegisteredWorkers {
  readonly #context: ActorContext<DirectoryMessage>
  readonly #changes: FleetChanges
  readonly #workersMax: number
  readonly #lives = new Map<string, Word>()
  readonly #byId = new Map<string, Registered>()
  readonly #refused: Set<string>
  readonly #presence: Closable
  /** Id of the worker that is removed because its lives are gone. */
  #removing: string | undefined
  #faultsTold = 0
  /** Counts the connections to the broker, and their ends. */
  #connection = 0

  /** `kept`: of an earlier life of the directory, whose workers are here already. */
  constructor(
    context: ActorContext<DirectoryMessage>,
    changes: FleetChanges,
    { servers, namespace, workersMax }: RegistrationArgs & { readonly workersMax: number },
    kept: KeptRegistrations = { urls: new Map(), refused: [] },
  ) {
    this.#context = context
    this.#changes = changes
    this.#workersMax = workersMax
    this.#refused = new Set(kept.refused)
    for (const [id, url] of kept.urls) {
      this.#lives.set(keptLife(id), { id, url, isConfirmed: false })
      this.#byId.set(id, { lives: new Set([keptLife(id)]), url })
    }
    const { self } = context
    this.#presence = context.use(transportCapability).messages.present(
      { endpoint: registrationEndpoint(servers, namespace), card: undefined },
      {
        present: ({ life, card }) => void self.tell({ type: 'workerPresent', life, card }),
        gone: (life, reason) => void self.tell({ type: 'workerAbsent', life, reason }),
        connected: () => void self.tell({ type: 'brokerConnected' }),
      },
    )
  }

  get kept(): KeptRegistrations {
    const urls = new Map<string, string>()
    for (const [id, { url }] of this.#byId) if (url !== undefined) urls.set(id, url)
    return { urls, refused: [...this.#refused] }
  }

  present(life: string, card: Uint8Array): void {
    const word = readRegistration(card)
    if ('fault' in word) {
      this.#tellFault(`a registration cannot be used: ${word.fault}`, {})
      return
    }
    if (this.#refused.has(life)) return
    const { url } = word
    const id = this.#idOf(url)
    if (id === undefined) return
    const before = this.#lives.get(life)
    if (before !== undefined && before.id !== id) this.#leave(life, 'it registered with another address')
    const registered = this.#byId.get(id) ?? { lives: new Set(), url: undefined }
    this.#byId.set(id, registered)
    this.#lives.set(life, { id, url, isConfirmed: true })
    if (before?.url !== url) registered.lives.delete(life)
    registered.lives.add(life)
    // The life that was kept is this one, or one before it.
    registered.lives.delete(keptLife(id))
    this.#lives.delete(keptLife(id))
    this.#settle(id, 'it registered with other parameters')
  }

  absent(life: string, reason: AbsenceReason): void {
    if (reason === 'bye') this.#refused.delete(life)
    const word = this.#lives.get(life)
    if (word === undefined) return
    if (reason === 'no broker') {
      // Which workers are present is not known until the broker is back.
      this.#connection++
      word.isConfirmed = false
    } else this.#leave(life, reason === 'bye' ? 'it said good-bye' : 'its registration was not renewed')
  }

  connected(): void {
    this.#context.schedule(RETURN_MS, { type: 'registrationsDue', connection: ++this.#connection })
  }

  /** Present workers have had time to register again: removes those that have not. */
  due(connection: number): void {
    if (connection !== this.#connection) return
    for (const [life, { isConfirmed }] of [...this.#lives])
      if (!isConfirmed) this.#leave(life, 'it did not register again after the broker was away')
  }

  /** A worker has left the fleet. If this module did not remove it, the operator did. */
  left(id: string): void {
    if (id === this.#removing) return
    for (const life of this.#byId.get(id)?.lives ?? []) {
      this.#lives.delete(life)
      if (life !== keptLife(id)) this.#refuse(life)
    }
    this.#byId.delete(id)
  }

  close(): void {
    this.#presence.close()
  }

  #leave(life: string, reason: string): void {
    const { id } = this.#lives.get(life)!
    this.#lives.delete(life)
    this.#byId.get(id)!.lives.delete(life)
    this.#settle(id, reason)
  }

  /**
   * Applies the last of its lives to the worker. `reason`: why the present worker leaves, if it does.
   */
  #settle(id: string, reason: string): void {
    const registered = this.#byId.get(id)!
    const life = [...registered.lives].at(-1)
    const url = life === undefined ? undefined : this.#lives.get(life)!.url
    if (url === undefined) this.#byId.delete(id)
    if (registered.url === url) return
    if (registered.url !== undefined) {
      registered.url = undefined
      this.#removing = id
      this.#changes.remove(id, reason)
      this.#removing = undefined
    }
    if (url !== undefined) this.#add(id, registered, url)
  }

  /** A worker that registered itself is here under this id. */
  has(id: string): boolean {
    return this.#byId.get(id)?.url !== undefined
  }

  #add(id: string, registered: Registered, url: string): void {
    let count = 0
    for (const other of this.#byId.values()) if (other.url !== undefined) count++
    if (count >= this.#workersMax) {
      const text = `a registered worker is left out: ${count} have registered, as many as there are worker slots; raise --worker-slots-max`
      this.#tellFault(text, { worker: id })
      return
    }
    // Known before it joins, so that its key is not one of a worker that the operator named.
    registered.url = url
    const added = this.#changes.add(url, NO_KEYS)
    if ('code' in added) {
      registered.url = undefined
      this.#tellFault(`a registered worker is left out: ${added.message}`, { worker: id })
      return
    }
    // With what it came by.
    this.#changes.keep()
  }

  #refuse(life: string): void {
    this.#refused.add(life)
    if (this.#refused.size > REFUSED_MAX) this.#refused.delete(this.#refused.values().next().value!)
  }

  #idOf(url: string): string | undefined {
    try {
      return this.#changes.idOf(url)
    } catch (error) {
      this.#tellFault(`a registration cannot be used: ${(error as Error).message}`, {})
      return undefined
    }
  }

  /** Limits the log lines: any program at the broker may send wrong registrations. */
  #tellFault(text: string, fields: Readonly<Record<string, unknown>>): void {
    if (this.#faultsTold++ < FAULTS_TOLD_MAX) this.#context.log.warn(fields, text)
  }
}

/** Stands for the unknown lives of a worker, until one is heard after a restart of the directory. */
function keptLife(id: string): string {
  return `kept ${id}`
}
