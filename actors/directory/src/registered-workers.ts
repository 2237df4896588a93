/**
 * Registered workers: those that say at a broker that they are there, for as long as they do.
 *
 *   present  ─▶ added like one of POST /workers; of two lives with one id, the last counts
 *   good-bye, or silent for five seconds  ─▶ removed, with all that was known of it
 *   no broker  ─▶ they stay, as their health has it; who is not there RETURN_MS after the broker is back is removed
 *
 * Workers that the operator named stay the operator's: a registration of the same id changes nothing.
 * Owns   which workers came so, and by which life.
 */

import type { ActorContext } from '@homing/actor'
import { type AbsenceReason, type Closable, transportCapability } from '@homing/transport'
import { readRegistration, registrationEndpoint } from '@homing/worker'
import type { FleetChanges } from './fleet-changes.ts'
import type { DirectoryMessage } from './messages.ts'

export interface RegistrationArgs {
  /** 'host:port' each. */
  readonly servers: readonly string[]
  readonly namespace: string
}

const RETURN_MS = 10_000
const FAULTS_TOLD_MAX = 100

export class RegisteredWorkers {
  readonly #context: ActorContext<DirectoryMessage>
  readonly #changes: FleetChanges
  /** By worker id: whose word it is, and the URL. */
  readonly #owners = new Map<string, { readonly life: string; readonly url: string }>()
  /** Ids of workers whose life was not heard since the broker was away. */
  readonly #unconfirmed = new Set<string>()
  readonly #presence: Closable
  #faultsTold = 0
  /** Counts the connections to the broker, and their ends. */
  #connection = 0

  /** `kept`: of an earlier life of the directory, whose workers are here already, by id. */
  constructor(
    context: ActorContext<DirectoryMessage>,
    changes: FleetChanges,
    { servers, namespace }: RegistrationArgs,
    kept: ReadonlyMap<string, string> = new Map(),
  ) {
    this.#context = context
    this.#changes = changes
    for (const [id, url] of kept) {
      this.#owners.set(id, { life: '', url })
      this.#unconfirmed.add(id)
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

  get kept(): ReadonlyMap<string, string> {
    return new Map([...this.#owners].map(([id, { url }]) => [id, url]))
  }

  present(life: string, card: Uint8Array): void {
    const word = readRegistration(card)
    if ('fault' in word) {
      this.#tellFault(`a registration cannot be used: ${word.fault}`, {})
      return
    }
    const { url } = word
    const id = this.#idOf(url)
    if (id === undefined) return
    this.#unconfirmed.delete(id)
    const owner = this.#owners.get(id)
    if (owner === undefined) this.#add(id, life, url)
    else if (owner.url === url && this.#changes.has(id)) this.#owners.set(id, { life, url })
    else {
      this.#changes.remove(id, 'it registered with other parameters')
      this.#owners.delete(id)
      this.#add(id, life, url)
    }
  }

  absent(life: string, reason: AbsenceReason): void {
    for (const [id, owner] of [...this.#owners]) {
      if (owner.life !== life) continue
      if (reason === 'no broker') {
        // Who is there now is not known before the broker is back.
        this.#connection++
        this.#unconfirmed.add(id)
        continue
      }
      this.#remove(id, reason === 'bye' ? 'it said good-bye' : 'its registration was not renewed')
    }
  }

  connected(): void {
    this.#context.schedule(RETURN_MS, { type: 'registrationsDue', connection: ++this.#connection })
  }

  /** Whoever is there has said so by now. */
  due(connection: number): void {
    if (connection !== this.#connection) return
    for (const id of [...this.#unconfirmed])
      this.#remove(id, 'it did not register again after the broker was away')
  }

  close(): void {
    this.#presence.close()
  }

  #add(id: string, life: string, url: string): void {
    const added = this.#changes.add(url)
    if ('code' in added) {
      this.#tellFault(`a registered worker is left out: ${added.message}`, { worker: id })
      return
    }
    this.#owners.set(id, { life, url })
    // With its owner.
    this.#changes.keep()
  }

  #remove(id: string, reason: string): void {
    this.#unconfirmed.delete(id)
    this.#owners.delete(id)
    this.#changes.remove(id, reason)
  }

  #idOf(url: string): string | undefined {
    try {
      return this.#changes.idOf(url)
    } catch (error) {
      this.#tellFault(`a registration cannot be used: ${(error as Error).message}`, {})
      return undefined
    }
  }

  /** Strangers may say much. */
  #tellFault(text: string, fields: Readonly<Record<string, unknown>>): void {
    if (this.#faultsTold++ < FAULTS_TOLD_MAX) this.#context.log.warn(fields, text)
  }
}
