/**
 * Life rules: looks at the claims of all observers of a history of lives, and checks these rules:
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
 *
 * Owns   what was found so far: violations, counts, the last claims of each observer, and since when each
 *        claims blocks that were never held.
 */

import type { Trust } from '@homing/index'
import type { LifeCast, Looked } from './life-cast.ts'
import type { Claim } from './life-claim.ts'
import type { LifeEngine } from './life-engine.ts'
import { BLOCK_TOKENS, BLOCKS, PROMPTS } from './life-prompts.ts'
import type { Script } from './life-script.ts'
import type { Unobservable } from './life-signs.ts'
import type { Surroundings } from './life-surroundings.ts'
import type { Wire } from './life-wire.ts'

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

export class LifeRules {
  readonly violations: Violation[] = []
  /** The step that is under way, by position in the script; −1 before the first. */
  step = -1
  readonly #script: Script
  readonly #around: Surroundings
  readonly #cast: LifeCast
  /** A credited block is stale when its removal could be known for longer than this. */
  readonly #staleMs: number
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
  readonly #told = new Map<string, string>()
  #looks = 0
  #exactLooks = 0
  #untold = 0
  readonly #unobservable = new Set<Unobservable>()
  #rests = 0
  #exactRests = 0

  constructor(script: Script, around: Surroundings, cast: LifeCast, staleMs: number) {
    this.#script = script
    this.#around = around
    this.#cast = cast
    this.#staleMs = staleMs
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

  async look(): Promise<void> {
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
          forMs > this.#staleMs &&
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

  /** As it is when everything had time to heal. */
  async lookAtRest(): Promise<void> {
    for (const claim of await this.#claims(true)) this.#checkAtRest(claim)
  }

  /** Sources that are not as good as their engines allow. */
  async notHealed(): Promise<readonly string[]> {
    const open: string[] = []
    const check = (who: string, engine: LifeEngine, wire: Wire, trust: Trust, reason: string): void => {
      const least = this.#leastTrust(who, engine, wire)
      if (ORDER.indexOf(trust) > ORDER.indexOf(least)) open.push(`${who}: ${trust} (${reason}), not ${least}`)
    }
    for (const { who, engine, trust, reason } of await this.#cast.router.claims()) {
      if (who === 'router behind the sidecar' && !this.#cast.sidecar.isUp) continue
      check(who, engine, this.#cast.router.wire, trust, reason)
    }
    for (const observer of [this.#cast.service, this.#cast.peer]) {
      if (!observer.isUp) continue
      for (const { engine, who, trust, reason } of await observer.trusts())
        check(who, engine, observer.wire, trust, reason)
    }
    return open
  }

  /**
   * Asks every observer, except one that would repeat its last claims: they were right twice, nothing has
   * arrived since, and no cache has changed.
   */
  async #claims(isAtRest = false): Promise<readonly Claim[]> {
    const all: Claim[] = []
    for (const observer of this.#cast.observers) {
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

  #tellClaim({ who, engine, trust, reason, credited }: Claim): void {
    const wrong = credited.filter(block => !engine.holds(block)).map(block => BLOCKS[block]!.name)
    const text = `${who}: ${trust}, ${credited.length} blocks${wrong.length > 0 ? `, wrong: ${wrong.join(' ')}` : ''} (${reason})`
    if (this.#told.get(who) === text) return
    this.#told.set(who, text)
    this.#around.tell(text)
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
        if (isOfSockets && this.#cast.neighbour.heldIn.some(blocks => blocks.has(block))) {
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
    const sentMs = this.#cast.router.saltedMs.get(beginningOf(twin))
    return sentMs === undefined || sentMs > sinceMs ? undefined : this.#around.clock.nowMs() - sinceMs
  }

  #found(rule: Violation['rule'], claim: Claim, blocks: readonly number[], text: string): void {
    const { who, trust, reason, engine } = claim
    if (this.violations.some(found => found.rule === rule && found.who === who)) return
    const names = blocks.map(block => BLOCKS[block]!.name).join(' ')
    const step = this.#script.steps[this.step]?.do ?? 'rest'
    this.violations.push({
      rule,
      who,
      text: `${who} credits ${engine.name} with ${names} under ${trust} (${reason}) ${text}, step ${this.step} (${step})`,
    })
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
    const isContradicted = who === 'router' && this.#cast.router.hasContradicted
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
      (who.startsWith('router') && this.#cast.router.mayLack(who, beginningOf(block)))
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

const ORDER: readonly Trust[] = ['exact', 'partial', 'approximate', 'none']
