/**
 * Prompt counts: compares the tokens that the router counted in prompts with those that engines report. Other
 * tokens are other blocks: a prompt that the engine writes by another template, or reads with another
 * tokenizer, is never found in its cache, however well its events are known.
 *
 *   differs   DIFFERENCES answers differed, and no AGREEMENTS answers in a row agreed between them: a
 *             template may differ for some chats only. Said again after as many more
 *   agrees    after that, AGREEMENTS answers in a row agreed; said again after as many more
 *
 * Several engines count the cached part apart, so either sum agrees. Engines that report 0 report nothing.
 *
 * Bounded: ROWS_MAX rows; beyond it the row that began first is forgotten.
 */

export const DIFFERENCES = 4
export const AGREEMENTS = 32
const ROWS_MAX = 4096

/** What is compared with one another: prompts of one kind at one engine. */
export interface CountedKind {
  readonly workerId: string
  /** Grows whenever the worker runs as another process; its earlier answers count no more. */
  readonly promptsEpoch: number
  /** The base model. */
  readonly model: string
  readonly route: string
  /** The party that tokenized. */
  readonly by: 'router' | 'engine'
}

export interface CountVerdict {
  readonly verdict: 'differs' | 'agrees'
  /** For people. */
  readonly reason: string
}

export interface ComparedCount {
  readonly isSame: boolean
  readonly verdict: CountVerdict | undefined
}

interface Row {
  readonly promptsEpoch: number
  differences: number
  agreements: number
  hasDiffered: boolean
}

export class PromptCounts {
  readonly #rows = new Map<string, Row>()

  /** Undefined: the answer does not say how long its prompt was. */
  add(
    kind: CountedKind,
    countedTokens: number,
    answer: { readonly promptTokens: number | undefined; readonly cachedTokens: number | undefined },
  ): ComparedCount | undefined {
    const { promptTokens, cachedTokens = 0 } = answer
    if (promptTokens === undefined || promptTokens === 0) return undefined
    const row = this.#rowOf(kind)
    const isSame = promptTokens === countedTokens || promptTokens + cachedTokens === countedTokens
    if (isSame) {
      row.agreements++
      if (row.agreements < AGREEMENTS) return { isSame, verdict: undefined }
      row.agreements = 0
      row.differences = 0
      const reason = `${AGREEMENTS} answers in a row counted the tokens that were counted here`
      return { isSame, verdict: row.hasDiffered ? { verdict: 'agrees', reason } : undefined }
    }
    row.agreements = 0
    row.differences++
    if (row.differences < DIFFERENCES) return { isSame, verdict: undefined }
    row.differences = 0
    row.hasDiffered = true
    const reason = `${DIFFERENCES} answers counted other tokens, the last one ${promptTokens} where ${countedTokens} were counted here`
    return { isSame, verdict: { verdict: 'differs', reason } }
  }

  /** Forgets the workers that are not among these. */
  keepOnly(workerIds: ReadonlySet<string>): void {
    for (const name of this.#rows.keys()) {
      const [id] = JSON.parse(name) as [string]
      if (!workerIds.has(id)) this.#rows.delete(name)
    }
  }

  #rowOf({ workerId, promptsEpoch, model, route, by }: CountedKind): Row {
    const name = JSON.stringify([workerId, model, route, by])
    const known = this.#rows.get(name)
    if (known?.promptsEpoch === promptsEpoch) return known
    const row = { promptsEpoch, differences: 0, agreements: 0, hasDiffered: false }
    this.#rows.delete(name)
    if (this.#rows.size >= ROWS_MAX) this.#rows.delete(this.#rows.keys().next().value!)
    this.#rows.set(name, row)
    return row
  }
}
