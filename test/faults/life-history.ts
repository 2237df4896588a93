/**
 * Runs one script of a history of lives: takes its steps, lets time pass, and has the rules (life-rules.ts)
 * looked at all the while.
 *
 * Owns   where in the script it is, the cast (life-cast.ts) and the rules.
 */

import { seededRandom } from '@homing/base'
import { LifeCast } from './life-cast.ts'
import { BLOCK_TOKENS, PLAIN, SALTED, tokensOf } from './life-prompts.ts'
import { type LifeOutcome, LifeRules } from './life-rules.ts'
import type { Script, Step } from './life-script.ts'
import { RealSurroundings, SimulatedSurroundings, type Surroundings } from './life-surroundings.ts'
import { IN_FLIGHT_MS } from './looks.ts'

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

class LifeHistory {
  readonly #script: Script
  readonly #bounds: Bounds
  readonly #around: Surroundings
  readonly #cast: LifeCast
  readonly #rules: LifeRules
  #fillers = 0

  constructor(script: Script, around: Surroundings, bounds: Bounds) {
    this.#script = script
    this.#bounds = bounds
    this.#around = around
    this.#cast = new LifeCast(script, around)
    this.#rules = new LifeRules(script, around, this.#cast, bounds.staleMs)
  }

  outcome(): Omit<LifeOutcome, 'violations'> {
    return this.#rules.outcome()
  }

  async run(): Promise<LifeOutcome> {
    await this.#around.finish(this.#cast.engine.open())
    await this.#around.finish(this.#cast.neighbour.open())
    for (const who of this.#script.present) await this.#cast.start(who)
    await this.#lookFor(20)
    for (const [i, step] of this.#script.steps.entries()) {
      this.#rules.step = i
      this.#around.tell(`step ${i}: ${step.do}`)
      await this.#take(step)
      await this.#rules.look()
      if (this.#rules.violations.length > 0) break
    }
    if (this.#rules.violations.length === 0) {
      this.#rules.step = this.#script.steps.length
      this.#around.tell('rest')
      await this.#rest()
    }
    return { ...this.outcome(), violations: this.#rules.violations }
  }

  async close(): Promise<void> {
    await this.#cast.close()
  }

  // Steps.

  async #take(step: Step): Promise<void> {
    const engine = this.#cast.engine
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
        await this.#cast.start(step.who)
        break
      case 'leave':
        await this.#cast.observer(step.who).stop(step.isGraceful)
        break
      case 'rejoin':
        if (!this.#cast.observer(step.who).isUp) break
        await this.#cast.observer(step.who).stop(step.isGraceful)
        await this.#cast.start(step.who)
        break
      case 'restart in place':
        engine.restartInPlace(step.first, step.isOtherProcess, step.blockTokens)
        for (const wire of this.#cast.wires('all')) wire.faults.drop += step.unheard
        break
      case 'restart':
        engine.fall()
        await this.#around.advance(step.downMs)
        await this.#around.finish(engine.rise())
        break
      case 'cut':
        for (const wire of this.#cast.wires(step.who)) wire.cut(step.ms)
        break
      case 'lose':
        for (const wire of this.#cast.wires(step.who)) wire.faults.drop += step.batches
        break
      case 'repeat':
        for (const wire of this.#cast.wires(step.who)) wire.faults.duplicate += step.batches
        break
      case 'delay':
        for (const wire of this.#cast.wires(step.who)) {
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
        if (step.isSaving) this.#cast.router.save()
        if (step.isSaving) await this.#around.advance(20)
        engine.hidesRemovals = true
        await this.#work(this.#script.seed + this.#rules.step, 2, false)
        this.#cast.router.contradicted()
        break
      case 'calm':
        this.#calm()
        break
    }
    await this.#lookFor(LOOK_MS)
  }

  #calm(): void {
    for (const { wire } of this.#cast.observers) wire.calm()
    if (!this.#cast.engine.isUp) return
    const { publisher } = this.#cast.engine
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
      if (isSalted) this.#cast.router.salted([...prompt, ...tail], 's')
      this.#cast.engine.work([...prompt, ...tail], isSalted ? 's' : undefined)
      if (this.#script.lie !== undefined) {
        const other = PLAIN[random.below(PLAIN.length)]!
        this.#cast.neighbour.work(tokensOf(other.slice(0, 1 + random.below(other.length))))
      }
      await this.#around.advance(1 + random.below(20))
    }
  }

  /** As many batches as there were, the last one the same. */
  async #double(): Promise<void> {
    const engine = this.#cast.engine
    const batches = engine.nextSequence
    const last = tokensOf('kop')
    engine.work(last)
    await this.#lookFor(300)
    await this.#cast.router.stop(true)
    engine.fall()
    await this.#around.finish(engine.rise())
    for (let i = 0; i < batches; i++) engine.speak()
    engine.work(last)
    await this.#cast.start('router')
  }

  async #burst(batches: number): Promise<void> {
    for (let i = 0; i < batches; i++) {
      this.#fillers++
      const token = FILLER + this.#fillers
      this.#cast.engine.work([token, token, token, token, 1])
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
      await this.#rules.look()
    }
  }

  // Rest.

  async #rest(): Promise<void> {
    this.#calm()
    await this.#around.finish(this.#cast.engine.rise())
    const startMs = this.#around.clock.nowMs()
    let round = 0
    let open: readonly string[] = []
    do {
      await this.#work(this.#script.seed + 7 * round, 2, false)
      await this.#lookFor(round < 8 ? 300 : LOOK_MS)
      await this.#around.advance(round < 8 ? 200 : 2000)
      await this.#rules.look()
      if (this.#rules.violations.length > 0) return
      open = await this.#rules.notHealed()
      round++
    } while (open.length > 0 && this.#around.clock.nowMs() - startMs < this.#bounds.restMsMax)
    // The next batch shows the loss of the last ones.
    this.#cast.engine.speak()
    this.#cast.neighbour.speak()
    await this.#lookFor(1500)
    if (this.#bounds.mustHeal)
      for (const text of open)
        this.#rules.violations.push({ rule: 'not healed', who: text.split(':')[0]!, text })
    await this.#rules.look()
    await this.#rules.lookAtRest()
  }
}
