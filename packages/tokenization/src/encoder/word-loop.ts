/**
 * Word loop: the part of encoding that most text needs, in WebAssembly (../../wasm/word-loop.ts): cut a piece
 * off, find its ids in the word table, go on. Pieces that the table lacks are noted, and the caller encodes
 * them afterwards; the loop stops at what it cannot cut: a surrogate.
 *
 *   memory   classes of characters | masks | answer | window: a part of the text | ids | misses |
 *            room of the word table
 *   misses   3 words each: where the piece begins, where it ends, how many of `ids` come before it
 *
 * The patterns of GPT-2, cl100k and its relatives are cut here (./scan-words.ts says how); encoders with
 * other patterns have no word loop.
 *
 * Invariants
 *   I1  Cuts are those of the scanner of the same plan. A piece is not cut if it might end elsewhere when the
 *       text behind the window is seen.
 *   I2  A word is found where `WordTable.find` would find it in the young generation, and nowhere else.
 */

import type { CharTable } from './char-table.ts'
import type { Contractions } from './scan-words.ts'
import { LETTER } from './scan-words.ts'
import type { DigitsFirst, SplitPlan } from './split-plan.ts'
import { WORD_LOOP_WASM_BASE64 } from './word-loop-wasm.ts'
import { WordTable } from './word-table.ts'

/** The part of the global WebAssembly used here; the type libraries of this workspace lack it. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object
  readonly Memory: new (size: { readonly initial: number }) => WasmMemory
  readonly Instance: new (module: object, imports: object) => { readonly exports: unknown }
}

interface WasmMemory {
  /** Another one after each `grow`, and the one before is empty then. */
  readonly buffer: ArrayBuffer
  grow(pages: number): void
}

interface WordLoopModule {
  setPattern(isGpt2: number, letters: number, digitsMax: number, takesSlash: number, how: number): void
  setMemory(
    classes: number,
    masks: number,
    answer: number,
    window: number,
    ids: number,
    idsBytes: number,
    misses: number,
    missesBytes: number,
  ): void
  setTable(at: number, slotCount: number, spilledAt: number): void
  run(size: number, ends: number, certain: number): void
}

const CONTRACTIONS: Readonly<Record<Contractions, number>> = { exact: 0, 'any-case': 1, 'ascii-case': 2 }

const PAGE_BYTES = 0x1_0000
const CLASSES_AT = 0
const MASKS_AT = 0x1_0000
const MASK_UNITS = 8
/** Words that a run writes: the fields of WordLoop in their order. */
const ANSWER_AT = MASKS_AT + 0x200
const ANSWER_WORDS = 7
const WINDOW_AT = MASKS_AT + 0x400
const WINDOW_UNITS = 8192
/** The loop reads up to eight units behind the last. */
const IDS_AT = WINDOW_AT + (WINDOW_UNITS + 16) * 2
const IDS = 8192
const MISSES_AT = IDS_AT + IDS * 4
/**
 * So few that the next run finds words which the last one missed, instead of missing them each time they come
 * up.
 */
const MISSES = 128
const MISS_WORDS = 3
const TABLE_AT = MISSES_AT + MISSES * MISS_WORDS * 4

let compiled: object | undefined

/** Runs over windows of a text; for one thread. */
export class WordLoop {
  readonly words: WordTable
  /** These two are replaced when a word is added to the table. */
  ids!: Int32Array
  misses!: Int32Array
  // Of the last run; places are units from where it began.
  /** The position after the last piece that was cut. */
  stoppedAt = 0
  idsCount = 0
  missesCount = 0
  /** Pieces cut, misses among them. */
  piecesCount = 0
  /** Where the last of them ends that lies before what is certain, or 0; ids and misses up to there. */
  settledAt = 0
  settledIds = 0
  settledMisses = 0
  readonly #module: WordLoopModule
  readonly #memory: WasmMemory
  #window!: Uint16Array
  #answer!: Int32Array
  /** Of the table, when the module was last told where it lies. */
  #slots: Int32Array | undefined

  /** Undefined where the plan has another pattern. `words`: the word table in the memory of the loop. */
  static of(
    plan: SplitPlan,
    digits: DigitsFirst,
    classes: CharTable,
    wordTableBytesMax: number,
  ): WordLoop | undefined {
    if (digits !== 'none' || (plan.kind !== 'gpt2' && plan.kind !== 'cl100k')) return undefined
    return new WordLoop(plan, classes, wordTableBytesMax)
  }

  private constructor(
    plan: Extract<SplitPlan, { readonly kind: 'gpt2' | 'cl100k' }>,
    classes: CharTable,
    wordTableBytesMax: number,
  ) {
    compiled ??= new WebAssembly.Module(Buffer.from(WORD_LOOP_WASM_BASE64, 'base64'))
    this.#memory = new WebAssembly.Memory({ initial: Math.ceil(TABLE_AT / PAGE_BYTES) })
    this.#module = new WebAssembly.Instance(compiled, { env: { memory: this.#memory } })
      .exports as WordLoopModule
    this.#attach()
    this.words = new WordTable(wordTableBytesMax, { array: (at, words) => this.#room(at, words) })
    // Touch the memory for the first text now: first-time page access costs more than encoding its words.
    const { slots, spilled } = this.words.young
    for (const array of [this.#window, this.ids, this.misses, slots, spilled]) array.fill(0)
    const { buffer } = this.#memory
    new Uint8Array(buffer, CLASSES_AT, classes.bmp.length).set(classes.bmp)
    const masks = new Uint16Array(buffer, MASKS_AT, (MASK_UNITS + 1) * MASK_UNITS)
    for (let length = 0; length <= MASK_UNITS; length++)
      masks.fill(0xffff, length * MASK_UNITS, length * MASK_UNITS + length)
    const places = [CLASSES_AT, MASKS_AT, ANSWER_AT, WINDOW_AT] as const
    this.#module.setMemory(...places, IDS_AT, IDS * 4, MISSES_AT, MISSES * MISS_WORDS * 4)
    if (plan.kind === 'gpt2') this.#module.setPattern(1, LETTER, 0, 0, CONTRACTIONS.exact)
    else {
      const { letters, digitsMax, slashAfterPunctuation, contractions } = plan.rules
      const how = CONTRACTIONS[contractions]
      this.#module.setPattern(0, letters, digitsMax, slashAfterPunctuation ? 1 : 0, how)
    }
  }

  #attach(): void {
    const { buffer } = this.#memory
    this.#answer = new Int32Array(buffer, ANSWER_AT, ANSWER_WORDS)
    this.#window = new Uint16Array(buffer, WINDOW_AT, WINDOW_UNITS)
    this.ids = new Int32Array(buffer, IDS_AT, IDS)
    this.misses = new Int32Array(buffer, MISSES_AT, MISSES * MISS_WORDS)
  }

  #room(at: number, words: number): Int32Array {
    const lacking = TABLE_AT + (at + words) * 4 - this.#memory.buffer.byteLength
    if (lacking > 0) {
      this.#memory.grow(Math.ceil(lacking / PAGE_BYTES))
      this.#attach()
    }
    return new Int32Array(this.#memory.buffer, TABLE_AT + at * 4, words)
  }

  /**
   * Goes on in the text from `from`, as far as the window reaches, at most to `end`, where the text ends; the
   * fields then say how far it came. `certain`: the place before which cuts are certain, for `settledAt`.
   */
  run(units: Uint16Array, from: number, end: number, certain: number): void {
    const size = Math.min(end - from, WINDOW_UNITS)
    this.#window.set(units.subarray(from, from + size))
    const { young } = this.words
    if (young.slots !== this.#slots) {
      this.#module.setTable(young.slots.byteOffset, young.mask + 1, young.spilled.byteOffset)
      this.#slots = young.slots
    }
    const certainUnits = Math.max(0, Math.min(certain - from, WINDOW_UNITS + 1))
    this.#module.run(size, from + size === end ? 1 : 0, certainUnits)
    const answer = this.#answer
    this.stoppedAt = answer[0]!
    this.idsCount = answer[1]!
    this.missesCount = answer[2]!
    this.piecesCount = answer[3]!
    this.settledAt = answer[4]!
    this.settledIds = answer[5]!
    this.settledMisses = answer[6]!
  }
}
