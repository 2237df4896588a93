/** The body of GET /v1/models. */

export interface ModelCard {
  readonly id: string
  /** Base model of an adapter. */
  readonly parent?: string | undefined
  /** Where the engine has it from. */
  readonly root?: string | undefined
  /** Longest sequence in tokens. */
  readonly maxModelTokens?: number | undefined
  /** Unix seconds; default 0. */
  readonly createdSeconds?: number | undefined
  /** Default 'homing'. */
  readonly ownedBy?: string | undefined
}

/** `{"object":"list","data":[…]}`, fields as vLLM has them. */
export function modelsBody(cards: readonly ModelCard[]): Uint8Array {
  const data = cards.map(card => ({
    id: card.id,
    object: 'model',
    created: card.createdSeconds ?? 0,
    owned_by: card.ownedBy ?? 'homing',
    root: card.root ?? card.id,
    parent: card.parent ?? null,
    // Left out when unknown: clients take null for a limit of their own.
    max_model_len: card.maxModelTokens,
  }))
  return Buffer.from(JSON.stringify({ object: 'list', data }))
}
