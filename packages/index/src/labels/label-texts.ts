/**
 * Label texts: what is said of blocks and records as a text that nothing here reads, each text once, by a
 * number that stands in their flags. Readers of labels have no use for texts, so these are on the heap of the
 * writer, and nodes of the label memory stay unused for them: memory that is never written is not taken from
 * the system. At most half of the nodes.
 */

import { NODE_WORDS } from './label-words.ts'

const NODE_BYTES = 4 * NODE_WORDS
/** Of a text beside its characters, at most. */
const OVERHEAD_BYTES = 128

interface Text {
  readonly text: string
  readonly number: number
  readonly nodes: number
  uses: number
}

/** Nodes of the label memory that stay unused. */
export interface SparedNodes {
  /** False: there is no room. */
  spare(nodes: number): boolean
  giveBack(nodes: number): void
}

export class LabelTexts {
  readonly #nodes: SparedNodes
  readonly #nodesMax: number
  readonly #byText = new Map<string, Text>()
  /** From 1 on; those that are free are undefined. */
  readonly #byNumber: (Text | undefined)[] = [undefined]
  readonly #free: number[] = []
  #used = 0

  constructor(nodes: SparedNodes, nodesMax: number) {
    this.#nodes = nodes
    this.#nodesMax = nodesMax
  }

  /** Of number 0 there is none. */
  textOf(number: number): string | undefined {
    return this.#byNumber[number]?.text
  }

  /** The number of a text in place of another one, which is given back: 0 for none. Undefined: no room. */
  replace(before: number, text: string | undefined): number | undefined {
    if (before === 0 && text === undefined) return 0
    if (this.textOf(before) === text) return before
    this.give(before)
    return text === undefined ? 0 : this.#take(text)
  }

  give(number: number): void {
    const known = this.#byNumber[number]
    if (known === undefined) return
    known.uses--
    if (known.uses > 0) return
    this.#byText.delete(known.text)
    this.#byNumber[number] = undefined
    this.#free.push(number)
    this.#used -= known.nodes
    this.#nodes.giveBack(known.nodes)
  }

  #take(text: string): number | undefined {
    const known = this.#byText.get(text)
    if (known !== undefined) {
      known.uses++
      return known.number
    }
    const nodes = Math.ceil((2 * text.length + OVERHEAD_BYTES) / NODE_BYTES)
    if (this.#used + nodes > this.#nodesMax || !this.#nodes.spare(nodes)) return undefined
    this.#used += nodes
    const number = this.#free.pop() ?? this.#byNumber.length
    const added = { text, number, nodes, uses: 1 }
    this.#byText.set(text, added)
    this.#byNumber[number] = added
    return number
  }
}
