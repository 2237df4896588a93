/**
 * Runs one script of a history of lives, and checks these rules:
 *
 *   V1  No block is credited under `exact` that the engine does not hold, for longer than IN_FLIGHT_MS after
 *       the first sign of that (life-signs.ts). A block that the engine never held needs no sign: no event
 *       has reported it.
 *   V2  After the last fault, and enough time, every source is as good as its engine allows (`leastTrust`).
 *   V3  The same as V1 under any trust, while no recovery is under way. Excepted are removals that no
 *       observer understands, and those of another life that started behind the same sockets; the trust must
 *       report both cases.
 *   V4  As V2, and then no block is missing under `exact`.
 *
 * Blocks that were gone without any sign are counted as block × looks, `untold`. Histories in which that
 * happened under `exact`, because a life has passed for another, are counted by cause (`Unobservable` in
 * life-signs.ts).
 */

import { seededRandom } from '@homing/base'
import type { Trust } from '@homing/index'
import { LifeEngine } from './life-engine.ts'
import {
  type Claim,
  type LifeWorker,
  RouterObserver,
  ServiceObserver,
  SidecarObserver,
} from './life-observers.ts'
import { BLOCK_TOKENS, BLOCKS, PLAIN, PROMPTS, SALTED, tokensOf } from './life-prompts.ts'
import type { ObserverName, Script, Step } from './life-script.ts'
import type { Unobservable } from './life-signs.ts'
import { RealSurroundings, SimulatedSurroundings, type Surroundings } from './life-surroundings.ts'
import type { Wire } from './life-wire.ts'
import { IN_FLIGHT_MS } from './looks.ts'

export interface Violation {
  readonly rule: 'stale' | 'never held' | 'not healed' | 'missing' | 'error'
  readonly who: string
  /** What was observed, and when; for people. */
  readonly text: string
}

export interface LifeOutcome {
  readonly violations: readonly Violation[]
  /**
   * Counts: looks at claims, looks at claims under `exact`, and blocks credited in those although they were
   * gone without a sign.
   */
  readonly looks: number
  readonly exactLooks: number
  readonly untold: number
  /** Why some of those never could be known. */
  readonly unobservable: readonly Unobservable[]
  /** Claims at rest, and those that were `exact`. */
  readonly rests: number
  readonly exactRests: number
}

const LOOK_MS = 60
const FILLER = 4000

export interface LifeOptions {
  /**
   * Over sockets of this machine and in real time: long waits are cut short, and the machine may stand still
   * for a while.
   */
  readonly isReal?: boolean
  /** Called for every arrival, every change of belief, and every step. */
  readonly tell?: (line: string) => void
}

export async function runLife(
  script: Script,
  { isReal = false, tell }: LifeOptions = {},
): Promise<LifeOutcome> {
  const around = isReal ? await RealSurroundings.open(script.seed) : new SimulatedSurroundings(script.seed)
  around.tellLine = tell
  const history = new LifeHistory(script, around, isReal ? REAL : SIMULATED)
  try {
    return await history.run()
  } catch (error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error)
    return { ...history.outcome(), violations: [{ rule: 'error', who: 'the test', text }] }
  } finally {
    await history.close()
  }
}

interface Bounds {
  /** A credited block is stale when its removal could be known for longer than this. */
  readonly staleMs: number
  readonly waitMsMax: number
  readonly restMsMax: number
  /** Sources must have healed by then. */
  readonly mustHeal: boolean
}

/** A replay socket that was silent is left alone for 60 s. */
const SIMULATED: Bounds = { staleMs: IN_FLIGHT_MS, waitMsMax: 60_000, restMsMax: 140_000, mustHeal: true }
const REAL: Bounds = { staleMs: 1500, waitMsMax: 600, restMsMax: 4000, mustHeal: false }

interface Looked {
  readonly wire: Wire
  readonly isUp: boolean
}

class LifeHistory {
  readonly #script: Script
  readonly #bounds: Bounds
  readonly #around: Surroundings
  readonly #engine: LifeEngine
  readonly #neighbour: LifeEngine
  readonly #router: RouterObserver
  readonly #sidecar: SidecarObserver
  readonly #service: ServiceObserver
  readonly #peer: ServiceObserver
  readonly #violations: Violation[] = []
  /** Since when a claim credits a block that was never held, by claim and block. */
  readonly #neverHeld = new Map<string, number>()
  /** The last claims of each observer, and when they were made. */
  readonly #known = new Map<
    Looked,
    {
      readonly since: string
      readonly claims: readonly Claim[]
      readonly hasWrong: boolean
      readonly isSecond: boolean
    }
  >()
  #step = -1
  #fillers = 0
  #looks = 0
  #exactLooks = 0
  #untold = 0
  readonly #unobservable = new Set<Unobservable>()
  #rests = 0
  #exactRests = 0

  constructor(script: Script, around: Surroundings, bounds: Bounds) {
    const { kind, lie, checkpoints, writeMs, present, steps, sidecarBatches } = script
    this.#script = script
    this.#bounds = bounds
    this.#around = around
    const { clock, moments, origins, places } = around
    const shared = { kind, clock, moments, origins, host: places.host }
    this.#engine = new LifeEngine({
      ...shared,
      ...places.engine,
      name: 'engine',
      rank: 0,
      transport: around.transport(),
    })
    this.#neighbour = new LifeEngine({
      ...shared,
      ...places.neighbour,
      name: 'neighbour',
      rank: lie === 'ranks on one socket' ? script.seed % 2 : 0,
      transport: around.transport(),
    })
    const uses = (who: ObserverName) =>
      present.includes(who) || steps.some(step => 'who' in step && step.do === 'join' && step.who === who)
    const engine = this.#engine
    const { eventsPort } = places.engine
    const { replayPort } = lie === 'neighbour replay' ? places.neighbour : places.engine
    const replay = kind.offersReplay ? `&replay=${replayPort}` : ''
    const workers: LifeWorker[] = []
    if (!kind.isPolled) {
      workers.push({
        who: 'router',
        engine,
        url: `${engine.origin}?events=${eventsPort}${replay}`,
        isBehindSidecar: false,
      })
    }
    if (uses('sidecar')) {
      workers.push({
        who: 'router behind the sidecar',
        engine,
        url: `http://${places.host}:${places.engine.httpPorts[1]}?events=${portOf(places.sidecarEvents)}&replay=${portOf(places.sidecarReplay)}`,
        isBehindSidecar: true,
      })
    }
    if (lie === 'one port, two workers') {
      workers.push({
        who: 'router, of the neighbour',
        engine: this.#neighbour,
        url: `${this.#neighbour.origin}?events=${eventsPort}${replay}`,
        isBehindSidecar: false,
      })
    }
    const options = { checkpoints, writeMs }
    const replayEndpoint = kind.offersReplay ? `tcp://${places.host}:${replayPort}` : undefined
    const endpoint = engine.eventsEndpoint
    const rank = { engine, instanceId: 7n, endpoint, replayEndpoint }
    const second = { engine: this.#neighbour, instanceId: 8n, endpoint, replayEndpoint }
    const renumbered = {
      engine: this.#neighbour,
      instanceId: 7n,
      endpoint: this.#neighbour.eventsEndpoint,
      replayEndpoint: kind.offersReplay ? this.#neighbour.replayEndpoint : undefined,
    }
    this.#sidecar = new SidecarObserver(this.#around, engine, sidecarBatches)
    this.#router = new RouterObserver(this.#around, workers, this.#sidecar, options)
    this.#service = new ServiceObserver(
      this.#around,
      'service',
      places.service,
      [rank],
      lie === 'one endpoint, two instances' ? second : undefined,
      undefined,
      options,
    )
    this.#peer = new ServiceObserver(
      this.#around,
      'peer',
      places.peer,
      [lie === 'renumbered' ? renumbered : rank],
      undefined,
      this.#service,
      options,
    )
    if (lie === 'ranks on one socket') {
      for (const { wire } of this.#observers) wire.merged.set(endpoint, this.#neighbour.eventsEndpoint)
    }
  }

  outcome(): Omit<LifeOutcome, 'violations'> {
    return {
      looks: this.#looks,
      exactLooks: this.#exactLooks,
      untold: this.#untold,
      unobservable: [...this.#unobservable],
      rests: this.#rests,
      exactRests: this.#exactRests,
    }
  }

  async run(): Promise<LifeOutcome> {
    await this.#around.finish(this.#engine.open())
    await this.#around.finish(this.#neighbour.open())
    for (const who of this.#script.present) await this.#start(who)
    await this.#lookFor(20)
    for (const [i, step] of this.#script.steps.entries()) {
      this.#step = i
      this.#around.tell(`step ${i}: ${step.do}`)
      await this.#take(step)
      await this.#look()
      if (this.#violations.length > 0) break
    }
    if (this.#violations.length === 0) {
      this.#step = this.#script.steps.length
      this.#around.tell('rest')
      await this.#rest()
    }
    return { ...this.outcome(), violations: this.#violations }
  }

  async close(): Promise<void> {
    for (const who of ['router', 'peer', 'service', 'sidecar'] as const) await this.#observer(who).stop(false)
    this.#engine.close()
    this.#neighbour.close()
    this.#around.close()
  }

  async #start(who: ObserverName): Promise<void> {
    const started = this.#observer(who).start()
    if (started !== undefined) await this.#around.finish(started)
  }

  #observer(who: ObserverName): {
    readonly wire: Wire
    readonly isUp: boolean
    start(): void | Promise<void>
    stop(isGraceful: boolean): Promise<void>
  } {
    if (who === 'router') return this.#router
    if (who === 'sidecar') return this.#sidecar
    return who === 'service' ? this.#service : this.#peer
  }

  #wires(who: ObserverName | 'all'): readonly Wire[] {
    return who === 'all' ? this.#observers.map(({ wire }) => wire) : [this.#observer(who).wire]
  }

  // Steps.

  async #take(step: Step): Promise<void> {
    const engine = this.#engine
    const faults = (given: object) => {
      if (engine.isUp) engine.publisher.faults = { ...engine.publisher.faults, ...given }
    }
    switch (step.do) {
      case 'work':
        await this.#work(step.seed, step.requests, step.salted)
        break
      case 'burst':
        await this.#burst(step.batches)
        break
      case 'wait':
        await this.#lookFor(Math.min(step.ms, this.#bounds.waitMsMax))
        break
      case 'join':
        await this.#start(step.who)
        break
      case 'leave':
        await this.#observer(step.who).stop(step.isGraceful)
        break
      case 'rejoin':
        if (!this.#observer(step.who).isUp) break
        await this.#observer(step.who).stop(step.isGraceful)
        await this.#start(step.who)
        break
      case 'restart in place':
        engine.restartInPlace(step.first, step.isOtherProcess, step.blockTokens)
        for (const wire of this.#wires('all')) wire.faults.drop += step.unheard
        break
      case 'restart':
        engine.fall()
        await this.#around.advance(step.downMs)
        await this.#around.finish(engine.rise())
        break
      case 'cut':
        for (const wire of this.#wires(step.who)) wire.cut(step.ms)
        break
      case 'lose':
        for (const wire of this.#wires(step.who)) wire.faults.drop += step.batches
        break
      case 'repeat':
        for (const wire of this.#wires(step.who)) wire.faults.duplicate += step.batches
        break
      case 'delay':
        for (const wire of this.#wires(step.who)) {
          wire.faults.delay += step.batches
          wire.faults.delayMs = step.ms
        }
        break
      case 'lossy replay':
        faults({ replayLoseEvery: step.every, replayRepliesMax: step.repliesMax })
        break
      case 'silent replay':
        faults({ replaySilent: true })
        break
      case 'unknown removals':
        faults({ unknownRemovals: step.batches })
        break
      case 'regroup':
        engine.hasRegrouped = true
        engine.hasMisled = true
        faults({ group: step.group, removalGroup: step.removalGroup })
        break
      case 'clear':
        engine.clear()
        break
      case 'double':
        await this.#double()
        break
      case 'contradict':
        if (step.isSaving) this.#router.save()
        if (step.isSaving) await this.#around.advance(20)
        engine.hidesRemovals = true
        await this.#work(this.#script.seed + this.#step, 2, false)
        this.#router.contradicted()
        break
      case 'calm':
        this.#calm()
        break
    }
    await this.#lookFor(LOOK_MS)
  }

  #calm(): void {
    for (const { wire } of this.#observers) wire.calm()
    if (!this.#engine.isUp) return
    const { publisher } = this.#engine
    publisher.faults = {
      ...publisher.faults,
      replayLoseEvery: 0,
      replayRepliesMax: 0,
      replaySilent: false,
      unknownRemovals: 0,
    }
  }

  async #work(seed: number, requests: number, salted: boolean): Promise<void> {
    const random = seededRandom(seed)
    for (let i = 0; i < requests; i++) {
      const isSalted = salted && random.below(2) === 0
      const of = isSalted ? SALTED : PLAIN
      const letters = of[random.below(of.length)]!
      const prompt = tokensOf(letters.slice(0, 1 + random.below(letters.length)))
      const tail = Array.from({ length: random.below(BLOCK_TOKENS) }, () => 1 + random.below(50))
      if (isSalted) this.#router.salted([...prompt, ...tail], 's')
      this.#engine.work([...prompt, ...tail], isSalted ? 's' : undefined)
      if (this.#script.lie !== undefined) {
        const other = PLAIN[random.below(PLAIN.length)]!
        this.#neighbour.work(tokensOf(other.slice(0, 1 + random.below(other.length))))
      }
      await this.#around.advance(1 + random.below(20))
    }
  }

  /** As many batches as there were, the last one the same. */
  async #double(): Promise<void> {
    const engine = this.#engine
    const batches = engine.nextSequence
    const last = tokensOf('kop')
    engine.work(last)
    await this.#lookFor(300)
    await this.#router.stop(true)
    engine.fall()
    await this.#around.finish(engine.rise())
    for (let i = 0; i < batches; i++) engine.speak()
    engine.work(last)
    await this.#start('router')
  }

  async #burst(batches: number): Promise<void> {
    for (let i = 0; i < batches; i++) {
      this.#fillers++
      const token = FILLER + this.#fillers
      this.#engine.work([token, token, token, token, 1])
      if (i % 64 === 63) await this.#around.advance(1)
    }
    await this.#around.advance(1)
  }

  // Looking.

  async #lookFor(ms: number): Promise<void> {
    const endMs = this.#around.clock.nowMs() + ms
    while (this.#around.clock.nowMs() < endMs) {
      const leftMs = endMs - this.#around.clock.nowMs()
      await this.#around.advance(Math.min(leftMs, LOOK_MS))
      await this.#look()
    }
  }

  get #observers(): readonly (Looked & { claims(): Promise<readonly Claim[]> })[] {
    return [this.#router, this.#sidecar, this.#service, this.#peer]
  }

  /**
   * Asks every observer, except one that would repeat its last claims: they were right twice, nothing has
   * arrived since, and no cache has changed.
   */
  async #claims(isAtRest = false): Promise<readonly Claim[]> {
    const all: Claim[] = []
    for (const observer of this.#observers) {
      const since = `${this.#around.moments.now} ${observer.wire.arrivals} ${observer.isUp}`
      const known = this.#known.get(observer)
      const isSettled = known?.since === since && !known.hasWrong
      if (isSettled && known.isSecond && !isAtRest) {
        all.push(...known.claims)
        continue
      }
      const claims = await observer.claims()
      const hasWrong = claims.some(({ engine, credited }) => credited.some(block => !engine.holds(block)))
      this.#known.set(observer, { since, claims, hasWrong, isSecond: isSettled })
      for (const claim of claims) this.#tellClaim(claim)
      all.push(...claims)
    }
    return all
  }

  readonly #told = new Map<string, string>()

  #tellClaim({ who, engine, trust, reason, credited }: Claim): void {
    const wrong = credited.filter(block => !engine.holds(block)).map(block => BLOCKS[block]!.name)
    const text = `${who}: ${trust}, ${credited.length} blocks${wrong.length > 0 ? `, wrong: ${wrong.join(' ')}` : ''} (${reason})`
    if (this.#told.get(who) === text) return
    this.#told.set(who, text)
    this.#around.tell(text)
  }

  async #look(): Promise<void> {
    const nowMs = this.#around.clock.nowMs()
    for (const claim of await this.#claims()) {
      this.#looks++
      if (claim.trust === 'exact') this.#exactLooks++
      for (const [block, forMs] of this.#wrong(claim)) {
        if (forMs === undefined) {
          this.#untold++
          const why = claim.trust === 'exact' ? claim.unobservable(block) : undefined
          if (why !== undefined) this.#unobservable.add(why)
        } else if (
          forMs > this.#bounds.staleMs &&
          (claim.trust === 'exact' || (await this.#mustBeTrue(claim, block)))
        ) {
          const isKnown = claim.engine.gone(block) !== undefined
          this.#found(
            isKnown ? 'stale' : 'never held',
            claim,
            [block],
            `for ${Math.round(forMs)} ms, at ${nowMs} ms`,
          )
        }
      }
    }
  }

  /** Every credited block is held; held blocks may be missing. */
  async #mustBeTrue({ engine, isLive, isDoubted }: Claim, block: number): Promise<boolean> {
    const { lie } = this.#script
    const isLie = lie !== undefined && lie !== 'renumbered'
    const isOfOtherLife = engine.gone(block)?.isWithLife ?? false
    return !engine.hasMisled && !isLie && !isOfOtherLife && !isDoubted(block) && (await isLive())
  }

  /** Blocks that are credited and not held, and for how long that could be known; undefined: it could not. */
  #wrong(claim: Claim): readonly (readonly [block: number, forMs: number | undefined])[] {
    const { engine, credited, who } = claim
    const nowMs = this.#around.clock.nowMs()
    return credited
      .filter(block => !engine.holds(block))
      .map(block => {
        const name = BLOCKS[block]!.name
        // The block may come from another engine: then the salt under which this engine holds it does not
        // matter.
        const { lie } = this.#script
        const isOfSockets = lie === 'neighbour replay' || lie === 'ranks on one socket'
        if (isOfSockets && this.#neighbour.heldIn.some(blocks => blocks.has(block))) {
          return [block, this.#mistakenForMs(claim, block)]
        }
        const twin = engine.kind.manners.namesSalts ? -1 : twinOf(name)
        if (twin >= 0 && (engine.holds(twin) || engine.gone(twin) !== undefined)) {
          return [block, this.#saltedForMs(claim, block, twin)]
        }
        // A block that the engine never held needs no sign: it is wrong from its first claim on.
        if (engine.gone(block) !== undefined) return [block, claim.knownForMs(block)]
        const key = `${who} ${name}`
        const since = this.#neverHeld.get(key) ?? nowMs
        this.#neverHeld.set(key, since)
        return [block, nowMs - since]
      })
  }

  /**
   * A block that another engine published, and perhaps this engine too before the block was gone: no observer
   * can know from which engine the credited event came.
   */
  #mistakenForMs({ engine, mistakenForMs, knownForMs }: Claim, block: number): number | undefined {
    const forMs = mistakenForMs()
    if (forMs === undefined || engine.gone(block) === undefined) return forMs
    const goneForMs = knownForMs(block)
    return goneForMs === undefined ? undefined : Math.min(forMs, goneForMs)
  }

  /**
   * A block held, or once held, under a salt, that looks like one without. Only a router that sent a prompt
   * with such a beginning and a salt can know, for blocks stored after that.
   */
  #saltedForMs(claim: Claim, block: number, twin: number): number | undefined {
    const { engine } = claim
    const plainForMs = claim.knownForMs(block)
    // It was held without a salt, too, and that it is gone could not be known.
    if (engine.gone(block) !== undefined && plainForMs === undefined) return undefined
    const forMs = this.#saltForMs(claim, twin)
    return forMs === undefined ? undefined : Math.min(forMs, plainForMs ?? forMs)
  }

  #saltForMs({ engine, who, knownForMs }: Claim, twin: number): number | undefined {
    const sinceMs = engine.heldSinceMs(twin)
    if (sinceMs === undefined) return knownForMs(twin)
    if (!who.startsWith('router')) return undefined
    const sentMs = this.#router.saltedMs.get(beginningOf(twin))
    return sentMs === undefined || sentMs > sinceMs ? undefined : this.#around.clock.nowMs() - sinceMs
  }

  #found(rule: Violation['rule'], claim: Claim, blocks: readonly number[], text: string): void {
    const { who, trust, reason, engine } = claim
    if (this.#violations.some(found => found.rule === rule && found.who === who)) return
    const names = blocks.map(block => BLOCKS[block]!.name).join(' ')
    const step = this.#script.steps[this.#step]?.do ?? 'rest'
    this.#violations.push({
      rule,
      who,
      text: `${who} credits ${engine.name} with ${names} under ${trust} (${reason}) ${text}, step ${this.#step} (${step})`,
    })
  }

  // Rest.

  async #rest(): Promise<void> {
    this.#calm()
    await this.#around.finish(this.#engine.rise())
    const startMs = this.#around.clock.nowMs()
    let round = 0
    let open: readonly string[] = []
    do {
      await this.#work(this.#script.seed + 7 * round, 2, false)
      await this.#lookFor(round < 8 ? 300 : LOOK_MS)
      await this.#around.advance(round < 8 ? 200 : 2000)
      await this.#look()
      if (this.#violations.length > 0) return
      open = await this.#notHealed()
      round++
    } while (open.length > 0 && this.#around.clock.nowMs() - startMs < this.#bounds.restMsMax)
    // The next batch shows the loss of the last ones.
    this.#engine.speak()
    this.#neighbour.speak()
    await this.#lookFor(1500)
    if (this.#bounds.mustHeal)
      for (const text of open) this.#violations.push({ rule: 'not healed', who: text.split(':')[0]!, text })
    await this.#look()
    for (const claim of await this.#claims(true)) this.#checkAtRest(claim)
  }

  async #notHealed(): Promise<readonly string[]> {
    const open: string[] = []
    const check = (who: string, engine: LifeEngine, wire: Wire, trust: Trust, reason: string): void => {
      const least = this.#leastTrust(who, engine, wire)
      if (ORDER.indexOf(trust) > ORDER.indexOf(least)) open.push(`${who}: ${trust} (${reason}), not ${least}`)
    }
    for (const { who, engine, trust, reason } of await this.#router.claims()) {
      if (who === 'router behind the sidecar' && !this.#sidecar.isUp) continue
      check(who, engine, this.#router.wire, trust, reason)
    }
    for (const observer of [this.#service, this.#peer]) {
      if (!observer.isUp) continue
      for (const { engine, who, trust, reason } of await observer.trusts())
        check(who, engine, observer.wire, trust, reason)
    }
    return open
  }

  /** What the engine allows. */
  #leastTrust(who: string, engine: LifeEngine, _wire: Wire): Trust {
    const { kind, lie } = this.#script
    const { manners } = kind
    if (lie !== undefined) return 'none'
    // `homing indexer` keeps the block size that it was configured with, and two workers of one model have
    // the same size.
    if (engine.hasResized) return 'none'
    const isPlain = manners.removalGroup === 'same' && !engine.hasRegrouped && manners.namesSalts
    const isWhole = engine.keepsAll && engine.firstSequence === 0 && !engine.hasHidden && isPlain
    const isDirect = who !== 'router behind the sidecar'
    const isContradicted = who === 'router' && this.#router.hasContradicted
    if (isDirect && isWhole && !isContradicted && !kind.hasStillClock) return 'exact'
    // A trust based on another service is never higher, until the engine's own events replace all of it.
    return who === 'peer' ? 'approximate' : 'partial'
  }

  #checkAtRest(claim: Claim): void {
    const { kind } = this.#script
    const { engine, trust } = claim
    this.#rests++
    if (trust === 'exact') this.#exactRests++
    // An engine that repeats nothing looks like one that has published nothing, until its next batch.
    const isCounted = kind.manners.namesSalts && !engine.hasRegrouped && kind.keptBatches > 0
    if (trust !== 'exact' || !isCounted || claim.hasPassed) return
    const { who } = claim
    const isAllowed = (block: number): boolean =>
      // The index cannot be sure how many copies are left; and blocks that may belong to a prompt with a salt
      // are credited to no worker key.
      engine.hasLostCopies(block) ||
      (who.startsWith('router') && this.#router.mayLack(who, beginningOf(block)))
    const missing = PROMPTS.flatMap(({ blocks: ofPrompt }) => {
      const held = ofPrompt.findIndex(block => !engine.holds(block))
      return ofPrompt
        .slice(0, held < 0 ? undefined : held)
        .filter(block => !claim.credited.includes(block) && !isAllowed(block))
    })
    if (missing.length > 0) this.#found('missing', claim, [...new Set(missing)], 'not, at rest')
  }
}

function beginningOf(block: number): string {
  return PROMPTS[BLOCKS[block]!.prompt]!.tokens.slice(0, BLOCK_TOKENS).join()
}

/** The same block under a salt; −1: there is none. */
function twinOf(name: string): number {
  return BLOCKS.findIndex(block => block.name === `${name}+s`)
}

function portOf(endpoint: string): string {
  return endpoint.slice(endpoint.lastIndexOf(':') + 1)
}

const ORDER: readonly Trust[] = ['exact', 'partial', 'approximate', 'none']
