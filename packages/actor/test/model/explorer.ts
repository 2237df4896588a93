/**
 * Explorer: runs a few virtual threads in every possible order, and finds the shortest order that fails.
 *
 *   depth 0      ●                     a state: what each thread has seen so far, and the memory
 *              A/ \B
 *   depth 1    ●   ●                   one step: one operation of one thread (see model-words.ts)
 *             A \B A/ \B
 *   depth 2   ●   ●   ●                two orders may lead to one state; it is explored once
 *
 * Method     Breadth first, so the first failure is a shortest one. A thread's history is a tree of events;
 *            loads differ by *which store* they read, not by the value, so an event alone determines
 *            all that happened before it. A state is one event for each thread, the last store to each word,
 *            and the signals under way. States of different depth are never equal, so one layer at a time is
 *            kept for comparison, and the interleavings are counted exactly by adding up the ways into each
 *            state.
 * Memory     `load`, `store` and `exchange` are sequentially consistent: they happen in one order, which is
 *            the order of the steps. `read` and `write` are plain: right only without a data race, which is
 *            two accesses of one word by two threads, one of them plain, one of them writing, and neither
 *            before the other. What is before what follows from program order and from each load or exchange
 *            being after the store it read; vector clocks keep it. Signals order nothing (stricter than a
 *            port). Any race is a failure.
 * Plain steps  A race is found in any order of plain accesses, so they need no order of their own: a thread
 *            does them at once after its step. `interleavesPlain` makes them steps, too, which multiplies the
 *            states and must not change a verdict (and is a test of this file).
 * Death      A thread with `mayDie` may end before each of its steps, or while it waits; signals for its
 *            bells are lost. Its heir starts at any time after that, and after all that the dead one did.
 * Bounds     Complete unless `preemptionsMax` is given: then only orders in which a thread that could go on
 *            is left at most so often. An order longer than `stepsMax` counts as a failure: with programs
 *            that end, it shows that a thread can spin without progress.
 *
 * Not found here: what weak memory does to a program with data races, and faults that need more
 * operations or more threads than the model has.
 */

import { type Operation, type OperationKind, type Program, ProgramPoint } from './model-words.ts'

export interface VirtualThread {
  readonly name: string
  readonly program: Program
  readonly mayDie?: boolean
  /** Starts only after this thread, by name, has died. */
  readonly heirOf?: string
  /** Signals to these bells are lost when the thread dies. */
  readonly bells?: readonly string[]
}

/** A step as a monitor sees it, after it happened. */
export interface StepView {
  readonly thread: string
  readonly kind: OperationKind
  /** Index of the word; 0 for a signal. */
  readonly index: number
  /** What the word holds now. */
  readonly value: number
  /** What the word held before. */
  readonly before: number
  readonly bell: string
}

/** Numbers that are carried from step to step, and a rule about them. */
export interface Monitor {
  readonly counters: readonly number[]
  /** Changes `counters`; returns what is wrong. */
  step(counters: number[], step: StepView): string | undefined
}

export interface Model {
  readonly threads: readonly VirtualThread[]
  readonly bells?: readonly string[]
  /** Words that are not 0 at the start. */
  readonly memory?: ReadonlyMap<number, number>
  readonly monitor?: Monitor
  /** Checked in every state; returns what is wrong. */
  invariant?(state: StateView): string | undefined
  /** Asked in every state in which no thread can go on. */
  atEnd?(state: StateView): string | undefined
  /** A name for a word, for traces. */
  nameWord?(index: number): string
}

export interface Bounds {
  readonly preemptionsMax?: number
  readonly stepsMax?: number
  /** Past it, exploring ends and the report is not complete. */
  readonly statesMax?: number
  readonly interleavesPlain?: boolean
}

export interface Report {
  /** What went wrong first; undefined: nothing, within the bounds. */
  readonly failure: string | undefined
  /** The steps to the failure, one line each. */
  readonly trace: readonly string[]
  /** True: all states within the bounds were seen. */
  readonly isComplete: boolean
  readonly states: number
  /** Orders from the start to an end; above 2⁵³ rounded. */
  readonly interleavings: number
  /** States in which no thread can go on. */
  readonly ends: number
  /** Length of the longest order. */
  readonly steps: number
  readonly preemptionsMax: number | undefined
}

export type ThreadStatus = 'ready' | 'waiting' | 'ended' | 'dead' | 'unborn'

const STEPS_MAX = 400
const STATES_MAX = 3_000_000

/** Explores all orders of the model's threads within the bounds. */
export function explore(model: Model, bounds: Bounds = {}): Report {
  return new Explorer(model, bounds).run()
}

/** One line: the verdict, the bounds and how much was seen. */
export function summary(report: Report): string {
  if (report.failure !== undefined) {
    return `${report.failure} (in state ${report.states}, trace of ${report.trace.length} lines)`
  }
  const bound = report.preemptionsMax === undefined ? 'complete' : `≤ ${report.preemptionsMax} pre-emptions`
  const verdict = report.isComplete ? 'holds' : 'ended before all was seen'
  const count = report.interleavings
  const interleavings = count < 1e6 ? String(count) : count.toExponential(1)
  return `${verdict} (${bound}: ${report.states} states, ${interleavings} interleavings, ≤ ${report.steps} steps)`
}

/** The last event of a thread's history, which identifies everything that happened before it. */
interface Event {
  /** Also the version of the word that it wrote; 0 stands for the initial content. */
  readonly id: number
  readonly thread: number
  /** How many events the thread had before. */
  readonly position: number
  readonly parent: Event | undefined
  readonly label: Operation | 'begin' | 'start' | 'die'
  readonly result: number
  /** By thread: how many of its events are before this one or are this one. */
  readonly clock: readonly number[]
  /** What comes next; undefined when dead. */
  readonly point: ProgramPoint | undefined
  /** By what the next operation read, chose or took. */
  readonly next: Map<number, Event>
}

/**
 * Numbers that distinguish states: events by thread; last thread and pre-emptions, when these are bounded;
 * signals by bell; the monitor's counters; for each word the event that wrote it.
 */
type Code = number[]

const EXPLORED: Code = []

interface State {
  /** Emptied when the state has been explored. */
  code: Code
  readonly parent: State | undefined
  /** The last event of the thread that made the step here; 0 at the start. */
  readonly event: number
  /** Another state of this layer with the same hash. */
  readonly chained: State | undefined
  /** Orders that lead here. */
  ways: number
}

/** What can be asked of a state. */
export class StateView {
  readonly #explorer: Explorer
  readonly #code: Code

  constructor(explorer: Explorer, code: Code) {
    this.#explorer = explorer
    this.#code = code
  }

  word(index: number): number {
    return this.#explorer.valueOf(this.#code, index)
  }

  signals(bell: string): number {
    return this.#explorer.signalsOf(this.#code, bell)
  }

  /** By position in the model's monitor. */
  counter(position: number): number {
    return this.#explorer.counterOf(this.#code, position)
  }

  status(thread: string): ThreadStatus {
    return this.#explorer.statusOf(this.#code, thread)
  }

  notes(thread: string): string[] {
    return this.#explorer.notesOf(this.#code, thread)
  }
}

class Explorer {
  readonly #model: Model
  readonly #bounds: Bounds
  readonly #threads: readonly VirtualThread[]
  readonly #bells: readonly string[]
  readonly #events: Event[] = []
  /** Words get a place in the code when they are first written. */
  readonly #places = new Map<number, number>()
  /** Words that some thread accessed plainly, in any order explored. */
  readonly #plainWords = new Set<number>()
  readonly #isBounded: boolean
  readonly #firstBell: number
  readonly #firstCounter: number
  readonly #firstWord: number
  #layer = new Map<number, State>()
  #nextLayer = new Map<number, State>()
  #states = 0

  constructor(model: Model, bounds: Bounds) {
    this.#model = model
    this.#bounds = bounds
    this.#threads = model.threads
    this.#bells = model.bells ?? []
    this.#isBounded = bounds.preemptionsMax !== undefined
    this.#firstBell = this.#threads.length + 2
    this.#firstCounter = this.#firstBell + this.#bells.length
    this.#firstWord = this.#firstCounter + (model.monitor?.counters.length ?? 0)
  }

  run(): Report {
    const stepsMax = this.#bounds.stepsMax ?? STEPS_MAX
    const statesMax = this.#bounds.statesMax ?? STATES_MAX
    let interleavings = 0
    let ends = 0
    let steps = 0
    const report = (isComplete: boolean, failure?: string, state?: State, last = 0): Report => ({
      failure,
      trace: state === undefined ? [] : this.#trace(state, last),
      isComplete,
      states: this.#states,
      interleavings,
      ends,
      steps,
      preemptionsMax: this.#bounds.preemptionsMax,
    })

    const start = this.#begin()
    const first: State = { code: start, parent: undefined, event: 0, chained: undefined, ways: 1 }
    let failure: string | undefined
    for (let i = 0; i < this.#threads.length; i++) {
      failure ??= this.#errorOf(this.#events[start[i]!]!) ?? this.#doPlain(start, i)
    }
    failure ??= this.#invariant(start)
    if (failure !== undefined) return report(false, failure, first)
    this.#layer.set(0, first)
    this.#states = 1

    for (; this.#layer.size > 0; steps++) {
      if (this.#states > statesMax) return report(false)
      for (const hashed of this.#layer.values()) {
        for (let state: State | undefined = hashed; state !== undefined; state = state.chained) {
          if (steps >= stepsMax) return report(false, `no end after ${steps} steps`, state)
          let isEnd = true
          for (let i = 0; i < this.#threads.length; i++) {
            const event = this.#events[state.code[i]!]!
            if (this.#canStep(state.code, event)) {
              isEnd = false
              const choices = this.#choicesOf(event)
              for (let choice = 0; choice < choices; choice++) {
                const code = state.code.slice()
                if (this.#isBounded && !this.#switchTo(code, i)) continue
                const problem = this.#step(code, i, choice) ?? this.#doPlain(code, i) ?? this.#invariant(code)
                if (problem !== undefined) return report(false, problem, state, code[i])
                this.#add(code, state, code[i]!)
              }
            }
            if (this.#canDie(event)) {
              const code = state.code.slice()
              if (this.#isBounded) code[this.#threads.length] = i
              this.#die(code, i)
              const problem = this.#invariant(code)
              if (problem !== undefined) return report(false, problem, state, code[i])
              this.#add(code, state, code[i]!)
            }
          }
          if (isEnd) {
            ends += 1
            interleavings += state.ways
            const problem = this.#model.atEnd?.(new StateView(this, state.code))
            if (problem !== undefined) return report(false, problem, state)
          }
          state.code = EXPLORED
        }
      }
      const free = this.#layer
      this.#layer = this.#nextLayer
      free.clear()
      this.#nextLayer = free
    }
    steps -= 1
    return report(true)
  }

  valueOf(code: Code, index: number): number {
    const version = this.#versionOf(code, index)
    if (version === 0) return this.#model.memory?.get(index) ?? 0
    const label = this.#events[version]!.label as Operation
    return label.value
  }

  signalsOf(code: Code, bell: string): number {
    return code[this.#bellAt(bell)]!
  }

  counterOf(code: Code, position: number): number {
    return code[this.#firstCounter + position]!
  }

  statusOf(code: Code, thread: string): ThreadStatus {
    const event = this.#events[code[this.#threadAt(thread)]!]!
    if (event.label === 'die') return 'dead'
    if (event.label === 'begin' && this.#threads[event.thread]!.heirOf !== undefined) return 'unborn'
    if (event.point?.operation === undefined) return 'ended'
    return this.#canStep(code, event) ? 'ready' : 'waiting'
  }

  notesOf(code: Code, thread: string): string[] {
    const parts: (readonly string[])[] = []
    let event: Event | undefined = this.#events[code[this.#threadAt(thread)]!]!
    for (; event !== undefined; event = event.parent) {
      // An heir that has not started has run nothing, though its first point is known.
      const isUnborn = event.label === 'begin' && this.#threads[event.thread]!.heirOf !== undefined
      if (event.point !== undefined && !isUnborn) parts.push(event.point.notes)
    }
    return parts.reverse().flat()
  }

  #begin(): Code {
    // Place 0 is no event: as a version it stands for the memory at the start.
    this.#events.push(undefined as unknown as Event)
    const code: Code = []
    for (const [i, thread] of this.#threads.entries()) {
      const clock = this.#threads.map(() => 0)
      clock[i] = 1
      const point = new ProgramPoint(thread.program)
      const event = this.#newEvent(i, undefined, 'begin', 0, clock, point)
      code.push(event.id)
    }
    code.push(-1, 0)
    for (let i = 0; i < this.#bells.length; i++) code.push(0)
    code.push(...(this.#model.monitor?.counters ?? []))
    return code
  }

  #canStep(code: Code, event: Event): boolean {
    if (this.#isUnborn(event)) return this.#events[code[this.#ancestorOf(event)]!]!.label === 'die'
    const operation = event.point?.operation
    if (operation === undefined) return false
    return operation.kind !== 'wait' || code[this.#bellAt(operation.bell)]! > 0
  }

  #canDie(event: Event): boolean {
    const isAlive = event.point?.operation !== undefined && !this.#isUnborn(event)
    return isAlive && this.#threads[event.thread]!.mayDie === true
  }

  #choicesOf(event: Event): number {
    const operation = event.point?.operation
    return operation?.kind === 'choose' && !this.#isUnborn(event) ? operation.index : 1
  }

  /** Notes that `thread` goes on. False: that would be one pre-emption too many. */
  #switchTo(code: Code, thread: number): boolean {
    const at = this.#threads.length
    const last = code[at]!
    if (last !== -1 && last !== thread && this.#canStep(code, this.#events[code[last]!]!)) {
      if (code[at + 1]! >= this.#bounds.preemptionsMax!) return false
      code[at + 1]! += 1
    }
    code[at] = thread
    return true
  }

  /** Does the thread's next operation in `code`. Returns what is wrong. */
  #step(code: Code, thread: number, choice: number): string | undefined {
    const event = this.#events[code[thread]!]!
    if (this.#isUnborn(event)) {
      const dead = this.#events[code[this.#ancestorOf(event)]!]!
      const born = this.#after(event, 'start', dead.id, 0, event.point, dead)
      code[thread] = born.id
      return this.#errorOf(born)
    }
    const operation = event.point!.operation!
    const { kind, index } = operation
    let result = 0
    let source = 0
    let before = 0
    let joined: Event | undefined
    if (operation.bell !== '') {
      const bell = this.#bellAt(operation.bell)
      if (kind === 'ring') code[bell]! += 1
      else if (code[bell]! > 0) {
        code[bell]! -= 1
        result = source = 1
      }
    } else if (kind === 'choose') {
      result = source = choice
    } else {
      const isPlain = kind === 'read' || kind === 'write'
      const isWriting = kind !== 'load' && kind !== 'read'
      if (isPlain) this.#plainWords.add(index)
      if (this.#plainWords.has(index)) {
        const rival = this.#rivalOf(code, event, index, isPlain, isWriting)
        if (rival !== undefined) {
          const other = `${this.#threads[rival.thread]!.name}'s ${(rival.label as Operation).kind}`
          return `data race: ${this.#threads[thread]!.name}'s ${kind} of ${this.#nameWord(index)} and ${other}`
        }
      }
      before = this.valueOf(code, index)
      const version = this.#versionOf(code, index)
      if (kind === 'load' || kind === 'exchange' || kind === 'read') {
        result = before
        source = version
        if (kind !== 'read' && version !== 0) joined = this.#events[version]!
      }
    }
    const after = this.#after(event, operation, source, result, undefined, joined)
    code[thread] = after.id
    if (kind === 'store' || kind === 'exchange' || kind === 'write') this.#setVersion(code, index, after.id)
    const monitor = this.#model.monitor
    if (monitor !== undefined) {
      const counters = code.slice(this.#firstCounter, this.#firstWord)
      const value = operation.bell === '' && kind !== 'choose' ? this.valueOf(code, index) : 0
      const name = this.#threads[thread]!.name
      const problem = monitor.step(counters, {
        thread: name,
        kind,
        index,
        value,
        before,
        bell: operation.bell,
      })
      for (let i = 0; i < counters.length; i++) code[this.#firstCounter + i] = counters[i]!
      if (problem !== undefined) return problem
    }
    return this.#errorOf(after)
  }

  /** Plain accesses that come next for the thread, unless they are steps of their own. */
  #doPlain(code: Code, thread: number): string | undefined {
    if (this.#bounds.interleavesPlain === true) return undefined
    for (let count = 0; ; count++) {
      const event = this.#events[code[thread]!]!
      const kind = event.point?.operation?.kind
      if ((kind !== 'read' && kind !== 'write') || this.#isUnborn(event)) return undefined
      if (count > STEPS_MAX) return `no end after ${count} plain accesses`
      const problem = this.#step(code, thread, 0)
      if (problem !== undefined) return problem
    }
  }

  #die(code: Code, thread: number): void {
    const event = this.#events[code[thread]!]!
    // No operation gives a negative result source, so −1 cannot be taken for one.
    code[thread] = this.#after(event, 'die', -1, 0, undefined, undefined).id
    for (const bell of this.#threads[thread]!.bells ?? []) code[this.#bellAt(bell)] = 0
  }

  /**
   * An access of the word by another thread that does not happen before `event`'s next operation, and races
   * with it.
   */
  #rivalOf(code: Code, event: Event, word: number, isPlain: boolean, isWriting: boolean): Event | undefined {
    for (let thread = 0; thread < this.#threads.length; thread++) {
      if (thread === event.thread) continue
      const known = event.clock[thread]!
      let other: Event | undefined = this.#events[code[thread]!]!
      for (; other !== undefined && other.position >= known; other = other.parent) {
        const label = other.label
        if (typeof label === 'string' || label.bell !== '' || label.kind === 'choose') continue
        if (label.index !== word) continue
        const isOtherPlain = label.kind === 'read' || label.kind === 'write'
        const isOtherWriting = label.kind !== 'read' && label.kind !== 'load'
        if ((isPlain || isOtherPlain) && (isWriting || isOtherWriting)) return other
      }
    }
    return undefined
  }

  /** The event that follows `event`; `joined` is before it, too. */
  #after(
    event: Event,
    label: Event['label'],
    source: number,
    result: number,
    point: ProgramPoint | undefined,
    joined: Event | undefined,
  ): Event {
    const known = event.next.get(source)
    if (known !== undefined) return known
    const clock = event.clock.slice()
    if (joined !== undefined) {
      for (let i = 0; i < clock.length; i++) clock[i] = Math.max(clock[i]!, joined.clock[i]!)
    }
    clock[event.thread]! += 1
    const next = typeof label === 'string' ? point : event.point!.after(result)
    const created = this.#newEvent(event.thread, event, label, result, clock, next)
    event.next.set(source, created)
    return created
  }

  #newEvent(
    thread: number,
    parent: Event | undefined,
    label: Event['label'],
    result: number,
    clock: readonly number[],
    point: ProgramPoint | undefined,
  ): Event {
    const id = this.#events.length
    const position = parent === undefined ? 0 : parent.position + 1
    const event = { id, thread, position, parent, label, result, clock, point, next: new Map() }
    this.#events.push(event)
    return event
  }

  #add(code: Code, parent: State, event: number): void {
    let hash = 0
    for (let i = 0; i < code.length; i++) hash = Math.imul(hash ^ code[i]!, 0x9e3779b1) ^ (hash >>> 15)
    const first = this.#nextLayer.get(hash)
    for (let state = first; state !== undefined; state = state.chained) {
      if (isSame(state.code, code)) {
        state.ways += parent.ways
        return
      }
    }
    this.#nextLayer.set(hash, { code, parent, event, chained: first, ways: parent.ways })
    this.#states += 1
  }

  #versionOf(code: Code, index: number): number {
    const place = this.#places.get(index)
    return place === undefined ? 0 : (code[this.#firstWord + place] ?? 0)
  }

  #setVersion(code: Code, index: number, version: number): void {
    let place = this.#places.get(index)
    if (place === undefined) {
      place = this.#places.size
      this.#places.set(index, place)
    }
    while (code.length <= this.#firstWord + place) code.push(0)
    code[this.#firstWord + place] = version
  }

  #isUnborn(event: Event): boolean {
    return event.label === 'begin' && this.#threads[event.thread]!.heirOf !== undefined
  }

  #ancestorOf(event: Event): number {
    return this.#threadAt(this.#threads[event.thread]!.heirOf!)
  }

  #threadAt(name: string): number {
    const found = this.#threads.findIndex(thread => thread.name === name)
    if (found === -1) throw new Error(`cannot find a thread in the model: none is called ${name}`)
    return found
  }

  #bellAt(bell: string): number {
    const found = this.#bells.indexOf(bell)
    if (found === -1) throw new Error(`cannot find a bell in the model: none is called ${bell}`)
    return this.#firstBell + found
  }

  #errorOf(event: Event): string | undefined {
    return event.point?.error?.message
  }

  #invariant(code: Code): string | undefined {
    return this.#model.invariant?.(new StateView(this, code))
  }

  #trace(end: State, last: number): string[] {
    const path = last === 0 ? [] : [last]
    for (let state: State | undefined = end; state !== undefined; state = state.parent) path.push(state.event)
    const seen = this.#threads.map((_, thread) => thread + 1)
    const lines: string[] = []
    for (const id of path.reverse()) {
      const thread = this.#events[id]?.thread
      if (thread === undefined) continue
      const events: Event[] = []
      let event = this.#events[id]
      for (; event !== undefined && event.id !== seen[thread]; event = event.parent) events.push(event)
      for (const each of events.reverse()) lines.push(this.#line(each))
      seen[thread] = id
    }
    return lines
  }

  #line({ thread, label, result, point }: Event): string {
    const name = this.#threads[thread]!.name.padEnd(10)
    const notes = point === undefined ? '' : point.notes.map(note => `   (${note})`).join('')
    if (typeof label === 'string') return `${name} ${label}s`
    const { kind, index, value, bell } = label
    const word = this.#nameWord(index)
    const texts: Record<OperationKind, string> = {
      load: `${word} is ${result}`,
      store: `${word} ← ${value}`,
      exchange: `${word} ← ${value}, was ${result}`,
      read: `${word} is ${result}`,
      write: `${word} ← ${value}`,
      ring: bell,
      wait: bell,
      poll: `${bell}: ${result === 1 ? 'one' : 'none'}`,
      choose: `${result} of ${index}`,
    }
    return `${name} ${kind.padEnd(8)} ${texts[kind]}${notes}`
  }

  #nameWord(index: number): string {
    return this.#model.nameWord?.(index) ?? `word ${index}`
  }
}

function isSame(left: Code, right: Code): boolean {
  if (left.length !== right.length) return false
  for (let i = 0; i < left.length; i++) if (left[i] !== right[i]) return false
  return true
}
