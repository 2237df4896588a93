/**
 * Token answer: text and token ids of a worker, as the answer that a client of the OpenAI API knows.
 *
 *   stream   begin: the chunk that says whose turn it is (chat)   piece: a chunk   end: finish, usage, [DONE]
 *   whole    begin: `{"id":…,"message":{"content":"`              piece: its text  end: `"},…,"usage":{…}}`
 *
 * A whole answer is written as it comes, too: nothing of it is kept but the ids, if the client wants them.
 */

import type { TokenWishes } from './token-wishes.ts'

export interface TokenAnswerParts {
  readonly wishes: Pick<TokenWishes, 'form' | 'isStream' | 'wantsUsage' | 'wantsIds'>
  /** The name that the client used. */
  readonly model: string
  readonly id: string
  readonly createdSeconds: number
  readonly promptTokens: number
}

export interface TokenPiece {
  readonly text: string
  /** Those that came since the last piece. */
  readonly tokenIds: readonly number[]
}

export interface TokenEnd {
  readonly finishReason: string
  /** The string or the id of a stop that ended it. */
  readonly stopReason: string | number | undefined
  readonly completionTokens: number
  readonly cachedTokens: number | undefined
}

const DONE = 'data: [DONE]\n\n'

export class TokenAnswer {
  readonly #parts: TokenAnswerParts
  /** Of a whole answer whose client wants them. */
  readonly #ids: number[] = []

  constructor(parts: TokenAnswerParts) {
    this.#parts = parts
  }

  begin(): Uint8Array {
    const { wishes } = this.#parts
    if (!wishes.isStream) {
      const choice = wishes.form === 'chat' ? '"message":{"role":"assistant","content":"' : '"text":"'
      return Buffer.from(`${this.#head(false).slice(0, -1)},"choices":[{"index":0,${choice}`)
    }
    if (wishes.form === 'completions') return new Uint8Array(0)
    return this.#event({ delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null })
  }

  /** `isFirst`: there is a chunk even if nothing is in it, as a sign that the answer has begun. */
  piece({ text, tokenIds }: TokenPiece, isFirst = false): Uint8Array {
    const { wishes } = this.#parts
    if (!wishes.isStream) {
      if (wishes.wantsIds) for (const id of tokenIds) this.#ids.push(id)
      // Between the quotes.
      return Buffer.from(JSON.stringify(text).slice(1, -1))
    }
    const isSign = isFirst && wishes.form === 'completions'
    if (text === '' && !isSign && !(wishes.wantsIds && tokenIds.length > 0)) return new Uint8Array(0)
    const said = wishes.form === 'chat' ? { delta: { content: text } } : { text }
    const ids = wishes.wantsIds ? { token_ids: tokenIds } : {}
    return this.#event({ ...said, logprobs: null, finish_reason: null, ...ids })
  }

  end(end: TokenEnd): Uint8Array {
    const { wishes } = this.#parts
    const { finishReason, stopReason = null } = end
    const finish = { logprobs: null, finish_reason: finishReason, stop_reason: stopReason }
    const usage = this.#usage(end)
    if (!wishes.isStream) {
      const ids = wishes.wantsIds ? { token_ids: this.#ids } : {}
      const rest = JSON.stringify({ ...finish, ...ids }).slice(1)
      const close = wishes.form === 'chat' ? '"}' : '"'
      return Buffer.from(`${close},${rest}],"usage":${JSON.stringify(usage)}}`)
    }
    const said = wishes.form === 'chat' ? { delta: {} } : { text: '' }
    const events: Uint8Array[] = [this.#event({ ...said, ...finish })]
    if (wishes.wantsUsage)
      events.push(
        Buffer.from(
          `data: ${this.#head(true).slice(0, -1)},"choices":[],"usage":${JSON.stringify(usage)}}\n\n`,
        ),
      )
    return Buffer.concat([...events, Buffer.from(DONE)])
  }

  #event(choice: object): Uint8Array {
    const body = JSON.stringify([{ index: 0, ...choice }])
    return Buffer.from(`data: ${this.#head(true).slice(0, -1)},"choices":${body}}\n\n`)
  }

  #head(isChunk: boolean): string {
    const { id, createdSeconds: created, model, wishes } = this.#parts
    const object =
      wishes.form === 'chat' ? (isChunk ? 'chat.completion.chunk' : 'chat.completion') : 'text_completion'
    return JSON.stringify({ id, object, created, model })
  }

  #usage({ completionTokens, cachedTokens }: TokenEnd): object {
    const { promptTokens } = this.#parts
    return {
      prompt_tokens: promptTokens,
      completion_tokens: completionTokens,
      total_tokens: promptTokens + completionTokens,
      ...(cachedTokens === undefined
        ? {}
        : { prompt_tokens_details: { cached_tokens: Math.min(cachedTokens, promptTokens) } }),
    }
  }
}
