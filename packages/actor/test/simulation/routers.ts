/**
 * One seed of key routers: one that holds the keys of a thread that is away and one that remaps them, under faults,
 * then rest. Its book checks while it is written that each epoch has one owner of a key, that no two members handle a
 * key at a time, the order of each key, and at the end that nothing was lost but what a dead thread had taken.
 */

import {
  type ActorContext,
  createKeyRouter,
  defineActor,
  defineCapability,
  type KeyRouter,
  type Reply,
  type Supervision,
} from '@homing/actor'
import { createSimulation, type SeedOutcome, type SimulatedFaults } from '@homing/actor/simulation'
import { seededRandom } from '@homing/clock'

const THREADS = 3
const MEMBERS = 4
const KEYS = 12
const FAULT_MS = 120
const REST_MS = 6000
const ASK_MS_MAX = 60
const HANG_MS_MAX = 40
const HUNG_AFTER_MS = 15
/** From one that always ends in a remap to one that never does. */
const HOLD_MS = [1, 20, 10_000] as const

const SUPERVISION: Supervision = {
  directive: 'restart',
  max: 1000,
  within: '1m',
  backoff: { min: '1ms', max: '10ms', jitter: 0.3 },
}

/** Which message: numbers grow for each router. */
interface Tag {
  readonly router: string
  readonly key: number
  readonly number: number
}

/** The member takes so long. */
type Filed = Tag & { readonly ms: number }

type ClerkMessage =
  | ({ readonly type: 'file' } & Filed)
  /** The member fails. */
  | ({ readonly type: 'tear' } & Tag)
  | ({ readonly type: 'look'; readonly reply: Reply<number> } & Tag)

interface ClerkArgs {
  readonly router: string
}

/** A message of a key in the hands of a member. */
interface Work {
  readonly key: number
  readonly ref: string
  readonly uid: number
}

/** What the book of one router knows of a key. */
interface Page {
  /** The last tell that was handled. */
  last: number
  /** The epoch to which what was handled last can belong. */
  epoch: number
  /** Tells that were accepted and not handled, with the life that took them. */
  readonly open: Map<number, number>
  readonly inHand: Set<Work>
  readonly looks: Set<number>
}

/** Follows one router. It is on one real thread with all of the simulation, so members may write in it at once. */
class Book {
  readonly violations: string[] = []
  handled = 0
  moves = 0
  readonly #name: string
  readonly #router: () => KeyRouter<ClerkMessage>
  readonly #pages: readonly Page[]
  /** By epoch and key, the ref of the owner. */
  readonly #owners: string[][] = []
  readonly #endedUids = new Set<number>()

  constructor(name: string, router: () => KeyRouter<ClerkMessage>) {
    this.#name = name
    this.#router = router
    this.#pages = Array.from({ length: KEYS }, () => ({
      last: 0,
      epoch: 1,
      open: new Map(),
      inHand: new Set(),
      looks: new Set(),
    }))
  }

  /** Between any two steps: who owns what. */
  look(): void {
    const { epoch } = this.#router()
    const owners = this.#pages.map((_, key) => this.#router().refFor(key)?.key ?? '')
    const known = this.#owners[epoch]
    if (known === undefined) {
      this.#owners[epoch] = owners
      this.moves++
      return
    }
    for (const [key, owner] of owners.entries()) {
      if (known[key] !== owner) this.#fault(`key ${key} has two owners in epoch ${epoch}`)
    }
  }

  accepted(key: number, number: number): void {
    this.#pages[key]!.open.set(number, 0)
  }

  /** It will not be handled, for a reason, or was refused. */
  gone(key: number, number: number): void {
    this.#pages[key]!.open.delete(number)
  }

  taken(key: number, number: number, uid: number): void {
    const { open } = this.#pages[key]!
    if (open.has(number)) open.set(number, uid)
  }

  threadEnded(uid: number): void {
    this.#endedUids.add(uid)
  }

  /** A member has an instance: what an earlier one, which failed, still awaits is no work of the member. */
  started(ref: string): void {
    for (const { inHand } of this.#pages) for (const work of inHand) if (work.ref === ref) inHand.delete(work)
  }

  /** A member begins with a tell. */
  began(number: number, work: Work): void {
    const page = this.#pages[work.key]!
    if (number <= page.last) this.#fault(`key ${work.key}: ${number} was handled after ${page.last}`)
    page.last = number
    page.open.delete(number)
    this.handled++
    this.#enter(page, work)
  }

  /** A member answers an ask. */
  looked(number: number, work: Work): void {
    const page = this.#pages[work.key]!
    if (page.looks.has(number)) this.#fault(`key ${work.key}: ask ${number} was handled twice`)
    page.looks.add(number)
    this.#enter(page, work)
    this.ended(work)
  }

  #enter(page: Page, work: Work): void {
    const { key, ref } = work
    for (const other of page.inHand) {
      if (this.#endedUids.has(other.uid)) page.inHand.delete(other)
      else if (other.ref !== ref) this.#fault(`key ${key} is handled by two members at a time`)
    }
    page.inHand.add(work)
    const now = this.#router().epoch
    let epoch = page.epoch
    while (epoch <= now && this.#owners[epoch]?.[key] !== ref) epoch++
    if (epoch > now) this.#fault(`key ${key} was handled in epoch ${now} by a member that had lost it`)
    else page.epoch = epoch
  }

  ended(work: Work): void {
    this.#pages[work.key]!.inHand.delete(work)
  }

  /** At rest: lost is only what a dead thread had taken. */
  close(): void {
    for (const [key, { open }] of this.#pages.entries()) {
      for (const [number, uid] of open)
        if (!this.#endedUids.has(uid))
          this.#fault(`key ${key}: ${number} was accepted, and lost without a cause`)
    }
    for (const { name, state } of this.#router().members)
      if (state !== 'up') this.#fault(`${name} is ${state} at rest`)
  }

  #fault(what: string): void {
    this.violations.push(`${this.#name}: ${what}`)
  }
}

interface Desk {
  readonly books: ReadonlyMap<string, Book>
  readonly uid: number
}

const desk = defineCapability<Desk>({
  name: 'desk',
  create: () => {
    throw new Error('cannot make a desk: the simulation provides it')
  },
})

function setupClerk(ctx: ActorContext<ClerkMessage>, { router }: ClerkArgs) {
  const { books, uid } = ctx.use(desk)
  const book = books.get(router)!
  const { key: ref } = ctx.self
  book.started(ref)
  return {
    async file({ key, number, ms }: Filed) {
      const work = { key, ref, uid }
      book.began(number, work)
      if (ms > 0) await new Promise<void>(resolve => ctx.clock.after(ms, resolve))
      book.ended(work)
    },
    tear({ key, number }: Tag) {
      const work = { key, ref, uid }
      book.began(number, work)
      book.ended(work)
      throw new Error('a clerk tore it')
    },
    look({ key, number, reply }: Tag & { readonly reply: Reply<number> }) {
      book.looked(number, { key, ref, uid })
      reply(number)
    },
  }
}

export const clerk = defineActor(
  import.meta.url,
  'clerk',
)<ClerkMessage, ClerkArgs>({
  reentrant: false,
  setup: setupClerk,
})

/** Begins with the next message before it is done with the last. */
export const hastyClerk = defineActor(
  import.meta.url,
  'hastyClerk',
)<ClerkMessage, ClerkArgs>({
  reentrant: true,
  setup: setupClerk,
})

function faultsOf(seed: number): SimulatedFaults {
  const random = seededRandom(seed ^ 0x5eed)
  const sometimes = (chance: number): number => (random.below(3) === 0 ? chance : 0)
  return {
    delay: sometimes(0.05),
    delayMsMax: 10,
    crash: sometimes(0.01),
    crashesMax: 5,
    hang: sometimes(0.005),
    hangMsMax: HANG_MS_MAX,
    hangsMax: 3,
    spareNotReady: sometimes(0.5),
    slowStartMsMax: 200,
    pause: sometimes(0.005),
    pauseMsMax: 5,
  }
}

/** What was handled, and how often keys moved, over all routers. */
export interface RouterOutcome extends SeedOutcome {
  readonly handled: number
  readonly moves: number
}

export async function runRouters(seed: number): Promise<RouterOutcome> {
  const routers = new Map<string, KeyRouter<ClerkMessage>>()
  const books = new Map<string, Book>()
  for (const name of ['held', 'remapped']) books.set(name, new Book(name, () => routers.get(name)!))
  const withTag = (body: unknown, use: (book: Book, tag: Tag) => void): void => {
    const tag = body as Partial<Tag> | null
    if (tag?.router !== undefined) use(books.get(tag.router)!, tag as Tag)
  }
  const simulation = await createSimulation({
    seed,
    pools: { core: { count: THREADS } },
    provide: ({ uid }) => [[desk, { books, uid }]],
    // In some seeds a hang is taken for the end of its thread.
    hungAfter: seed % 4 === 0 ? HUNG_AFTER_MS : HANG_MS_MAX * 10,
    threadRestartsMax: 1000,
    threadBackoff: { min: '10ms', max: '80ms' },
    observer: {
      taken: ({ body }, _thread, uid) =>
        withTag(body, (book, { key, number }) => book.taken(key, number, uid)),
      // With the thread that had just taken it. There is no other cause: main lives, and no thread is given up.
      lost({ body }, cause) {
        if (cause === 'taken') withTag(body, (book, { key, number }) => book.gone(key, number))
      },
      ended(_thread, uid) {
        for (const book of books.values()) book.threadEnded(uid)
      },
    },
  })
  const { random, clock } = simulation
  const definition = random.below(2) === 0 ? clerk : hastyClerk
  const holdFor = HOLD_MS[random.below(HOLD_MS.length)]!
  for (const [name, whileDown] of [
    ['held', 'hold'],
    ['remapped', 'remap'],
  ] as const) {
    const router = createKeyRouter(simulation, definition, {
      name,
      args: { router: name },
      by: ({ key }) => key,
      over: { pool: 'core', size: MEMBERS },
      supervision: SUPERVISION,
      whileDown,
      holdFor,
    })
    routers.set(name, router)
  }
  const look = (): false => {
    for (const book of books.values()) book.look()
    return false
  }
  look()
  let count = 0
  let pendingAsks = 0
  const tell = (router: string): void => {
    count++
    const key = random.below(KEYS)
    const book = books.get(router)!
    const tag = { router, key, number: count }
    // Before the tell, which may hand it over at once.
    book.accepted(key, count)
    const message: ClerkMessage =
      random.below(60) === 0
        ? { type: 'tear', ...tag }
        : { type: 'file', ...tag, ms: random.below(8) === 0 ? random.below(4) : 0 }
    if (routers.get(router)!.tell(message) !== 'ok') book.gone(key, count)
  }
  const ask = (router: string): void => {
    count++
    pendingAsks++
    const settled = (): void => void pendingAsks--
    const message = { type: 'look', router, key: random.below(KEYS), number: count } as const
    routers
      .get(router)!
      .ask(message, { timeout: 1 + random.below(ASK_MS_MAX) })
      .then(settled, settled)
  }
  simulation.setFaults(faultsOf(seed))
  const endMs = clock.nowMs() + FAULT_MS
  while (clock.nowMs() < endMs) {
    for (const name of routers.keys()) {
      for (let left = random.below(6); left > 0; left--) tell(name)
      if (random.below(3) === 0) ask(name)
    }
    if (random.below(40) === 0) simulation.killThread(`core-${random.below(THREADS)}`).catch(() => {})
    await simulation.run(look, { within: 1 + random.below(3) })
  }
  simulation.setFaults({})
  await simulation.run(look, { within: REST_MS })
  for (const name of routers.keys()) for (let left = 3 * KEYS; left > 0; left--) tell(name)
  await simulation.run(look, { within: REST_MS })
  const violations = [...books.values()].flatMap(book => {
    book.close()
    return book.violations
  })
  const actors = JSON.stringify(await simulation.settle(simulation.describe()))
  const living = actors.match(/"(held|remapped)-\d+"/g)?.length
  if (living !== 2 * MEMBERS) violations.push(`${living} members live at rest`)
  if (pendingAsks > 0) violations.push(`${pendingAsks} asks did not settle`)
  const report = await simulation.settle(simulation.shutdown({ deadline: '5s' }), { within: '20s' })
  if (report.slow.length > 0) violations.push(`slow at the end: ${report.slow.join(', ')}`)
  violations.push(...simulation.violations)
  const sum = (of: (book: Book) => number): number =>
    [...books.values()].reduce((all, book) => all + of(book), 0)
  return {
    traceHash: simulation.traceHash,
    steps: simulation.steps,
    handled: sum(({ handled }) => handled),
    moves: sum(({ moves }) => moves - 1),
    violations: [...new Set(violations)],
  }
}
