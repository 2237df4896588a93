/**
 * Workers file watch: looks at the workers file every LOOK_INTERVAL_MS, and has the fleet follow it.
 *
 *   a URL that came  ─▶ the worker is added; one that still drained takes requests again
 *   a URL that went  ─▶ the worker drains
 *   other parameters for a worker  ─▶ it is removed and added
 *
 * Only changes in the file have an effect, and only on workers from the file: a worker that an operator
 * removed stays out until its line is removed and added again. A file that cannot be used has no effect, and
 * is logged once.
 * Owns   the last text that counted, and which workers came from it.
 */

import type { ActorContext } from '@homing/actor'
import {
  openWorker,
  readWorkersFile,
  WorkersFile,
  type WorkersFileChange,
  type WorkersFileLook,
} from '@homing/fleet'
import type { FleetChanges } from './fleet-changes.ts'
import type { DirectoryMessage, KeptFleet } from './messages.ts'

/** A file that was read and parsed before the directory began. */
export interface GivenWorkersFile {
  readonly path: string
  readonly urls: readonly string[]
}

const LOOK_INTERVAL_MS = 1000

export class WorkersFileWatch {
  readonly #context: ActorContext<DirectoryMessage>
  readonly #changes: FleetChanges
  readonly #file: WorkersFile
  /** By worker id: the URL that it was added with. */
  readonly #urls: Map<string, string>

  /** `kept`: of an earlier life of the directory, whose workers are here already. */
  constructor(
    context: ActorContext<DirectoryMessage>,
    changes: FleetChanges,
    { path, urls }: GivenWorkersFile,
    kept: KeptFleet['file'],
  ) {
    this.#context = context
    this.#changes = changes
    this.#file = new WorkersFile(path, kept?.urls ?? urls)
    this.#urls = new Map(kept?.urlsById)
    if (kept === undefined) for (const url of urls) this.#note(url, changes.beginWith(url))
    this.#lookSoon()
  }

  get kept(): KeptFleet['file'] {
    return { urls: this.#file.urls, urlsById: new Map(this.#urls) }
  }

  look(): void {
    this.#context.pipe(
      readWorkersFile(this.#file.path),
      text => ({ type: 'workersFileRead', found: { text } }),
      error => ({
        type: 'workersFileRead',
        found: { fault: error instanceof Error ? error.message : String(error) },
      }),
    )
  }

  read(found: WorkersFileLook): void {
    this.#lookSoon()
    const had = this.#file.fault
    const change = this.#file.looked(found)
    const { path, fault } = this.#file
    const { log } = this.#context
    if (change === 'newFault')
      log.warn({ path, fault }, 'the workers file is left aside; its workers stay as they are')
    else if (had !== undefined && fault === undefined)
      log.info({ path }, 'the workers file can be used again')
    if (typeof change !== 'object') return
    this.#apply(change)
    this.#changes.keep()
  }

  #apply({ added, gone }: WorkersFileChange): void {
    const came = new Set(added.map(url => this.#changes.idOf(url)))
    for (const url of gone) {
      const id = this.#changes.idOf(url)
      if (this.#urls.get(id) !== url) continue
      if (came.has(id)) this.#remove(id)
      else this.#changes.drain(id)
    }
    for (const url of added) {
      const id = this.#changes.idOf(url)
      if (this.#urls.has(id) && this.#changes.isDraining(id)) {
        if (this.#urls.get(id) === url) {
          this.#changes.resume(id)
          continue
        }
        this.#remove(id)
      }
      this.#note(url, this.#changes.add(url))
    }
  }

  #remove(id: string): void {
    this.#urls.delete(id)
    this.#changes.remove(id, 'its line in the workers file has changed')
  }

  #note(url: string, added: ReturnType<FleetChanges['add']>): void {
    if ('code' in added) {
      const { message } = added
      this.#context.log.warn(
        { path: this.#file.path, worker: openWorker(url), reason: message },
        'a worker of the workers file is left out',
      )
    } else this.#urls.set(added.id, url)
  }

  #lookSoon(): void {
    this.#context.schedule(LOOK_INTERVAL_MS, { type: 'workersFileLook' })
  }
}
