/**
 * CellTable: the cells of a thread by id. An id is the life that spawned the actor · 2³² + a number; as one
 * key it would be a double, which a Map finds four times slower than a small integer, so there is a Map for
 * each life.
 */

import type { Cell } from './cell.ts'

const ID_SPAN = 2 ** 32

export class CellTable {
  /** The parent of all top-level actors, with id 0, which is not among the others; on main only. */
  root: Cell | undefined = undefined
  readonly #byLife = new Map<number, Map<number, Cell>>()
  #lastLife = -1
  #lastCells: Map<number, Cell> | undefined = undefined
  #size = 0

  get size(): number {
    return this.#size
  }

  get(id: number): Cell | undefined {
    const number = id | 0
    const life = (id - (number >>> 0)) / ID_SPAN
    if (life !== this.#lastLife) {
      this.#lastLife = life
      this.#lastCells = this.#byLife.get(life)
    }
    return this.#lastCells?.get(number)
  }

  has(id: number): boolean {
    return this.get(id) !== undefined
  }

  set(id: number, cell: Cell): void {
    const number = id | 0
    const life = (id - (number >>> 0)) / ID_SPAN
    let cells = this.#byLife.get(life)
    if (cells === undefined) {
      cells = new Map()
      this.#byLife.set(life, cells)
      this.#lastLife = -1
    }
    const before = cells.size
    cells.set(number, cell)
    this.#size += cells.size - before
  }

  delete(id: number): void {
    const number = id | 0
    const life = (id - (number >>> 0)) / ID_SPAN
    const cells = this.#byLife.get(life)
    if (cells?.delete(number) !== true) return
    this.#size--
    if (cells.size > 0) return
    this.#byLife.delete(life)
    this.#lastLife = -1
  }

  *values(): Generator<Cell> {
    for (const cells of this.#byLife.values()) yield* cells.values()
  }
}
