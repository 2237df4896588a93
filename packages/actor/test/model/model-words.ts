/**
 * Model words: the memory that a program under the model checker sees, and how a plain function is
 * stopped in the middle.
 *
 * A *program* is an ordinary synchronous function `(words, host) => void` over the `Words` of production
 * code. It cannot be suspended, so it is run again from its start for each new operation: `Replay` answers
 * the earlier operations from their recorded results, notes the first one that has no result yet and ends
 * the run by a private exception. What the program has in local variables and private fields is thereby
 * rebuilt each time; it must depend on nothing but these results.
 *
 *   results   [7, 0, 1]
 *   program   load → 7, store, exchange → 1, load → ?     the next operation is this load
 *
 * A `ProgramPoint` is one such place in a program. Points form a tree by the results, so a program runs
 * once for each history of results that differs, however many interleavings lead there.
 */

import type { Words } from '../../src/links/ring/words.ts'

/**
 * Other operations of a program; each but `note` is a step of its own, and other steps can come before it.
 */
export interface Host {
  /** Sends one signal to `bell`. It is not lost, may be late, and orders no memory. */
  ring(bell: string): void
  /** Blocks until a signal for `bell` is there, and takes one. */
  wait(bell: string): void
  /** Takes one signal for `bell` if there is one. */
  poll(bell: string): boolean
  /** Something that may go either way, such as a timer: every number from 0 to `count` − 1 is explored. */
  choose(count: number): number
  /** Tells the check at the end what has happened here; not a step. */
  note(text: string): void
}

export type Program = (words: Words, host: Host) => void

export type OperationKind =
  | 'load'
  | 'store'
  | 'exchange'
  | 'read'
  | 'write'
  | 'ring'
  | 'wait'
  | 'poll'
  | 'choose'

/** One step that a program wants to do. */
export interface Operation {
  readonly kind: OperationKind
  /** Index of a word; of a choice, how many there are. */
  readonly index: number
  /** What a store, exchange or write puts there. */
  readonly value: number
  readonly bell: string
}

/** A place in a program: all before it has happened, `operation` comes next. */
export class ProgramPoint {
  /** Undefined: the program has ended. */
  readonly operation: Operation | undefined
  /** What the program threw here. */
  readonly error: Error | undefined
  /** Notes since the point before. */
  readonly notes: readonly string[]
  readonly #program: Program
  readonly #parent: ProgramPoint | undefined
  /** Result of the parent's operation. */
  readonly #result: number
  readonly #depth: number
  readonly #next = new Map<number, ProgramPoint>()

  constructor(program: Program, parent?: ProgramPoint, result = 0) {
    this.#program = program
    this.#parent = parent
    this.#result = result
    this.#depth = parent === undefined ? 0 : parent.#depth + 1
    const replay = new Replay(this.#results())
    this.error = replay.run(program)
    this.operation = replay.operation
    this.notes = replay.notes
  }

  /** The place after the operation has given `result` (0 when it gives none). */
  after(result: number): ProgramPoint {
    let next = this.#next.get(result)
    if (next === undefined) {
      next = new ProgramPoint(this.#program, this, result)
      this.#next.set(result, next)
    }
    return next
  }

  #results(): Int32Array {
    const results = new Int32Array(this.#depth)
    let point: ProgramPoint = this
    for (let i = this.#depth - 1; i >= 0; i--) {
      results[i] = point.#result
      point = point.#parent!
    }
    return results
  }
}

const STOP = Symbol('stop')

class Replay implements Words, Host {
  operation: Operation | undefined
  notes: string[] = []
  readonly #results: Int32Array
  #done = 0

  constructor(results: Int32Array) {
    this.#results = results
  }

  run(program: Program): Error | undefined {
    try {
      program(this, this)
    } catch (error) {
      if (error !== STOP) return error instanceof Error ? error : new Error(String(error))
    }
    if (this.#done < this.#results.length) return new Error('a program is not the same when run again')
    return undefined
  }

  load(index: number): number {
    return this.#step('load', index, 0)
  }

  store(index: number, value: number): void {
    this.#step('store', index, value | 0)
  }

  exchange(index: number, value: number): number {
    return this.#step('exchange', index, value | 0)
  }

  read(index: number): number {
    return this.#step('read', index, 0)
  }

  write(index: number, value: number): void {
    this.#step('write', index, value | 0)
  }

  ring(bell: string): void {
    this.#step('ring', 0, 0, bell)
  }

  wait(bell: string): void {
    this.#step('wait', 0, 0, bell)
  }

  poll(bell: string): boolean {
    return this.#step('poll', 0, 0, bell) === 1
  }

  choose(count: number): number {
    return this.#step('choose', count, 0)
  }

  note(text: string): void {
    if (this.#done === this.#results.length) this.notes.push(text)
  }

  #step(kind: OperationKind, index: number, value: number, bell = ''): number {
    if (this.#done < this.#results.length) return this.#results[this.#done++]!
    this.operation = { kind, index, value, bell }
    throw STOP
  }
}

/** The part of `words` that begins at `start`, as separate memory. */
export class WordsFrom implements Words {
  readonly #words: Words
  readonly #start: number

  constructor(words: Words, start: number) {
    this.#words = words
    this.#start = start
  }

  load(index: number): number {
    return this.#words.load(this.#start + index)
  }

  store(index: number, value: number): void {
    this.#words.store(this.#start + index, value)
  }

  exchange(index: number, value: number): number {
    return this.#words.exchange(this.#start + index, value)
  }

  read(index: number): number {
    return this.#words.read(this.#start + index)
  }

  write(index: number, value: number): void {
    this.#words.write(this.#start + index, value)
  }
}
