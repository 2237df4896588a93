/**
 * KV event of fields: makes the event that its tag names of what it says, or finds that it says too little,
 * or contradicts itself.
 */

import { byBlock, type KvLabels } from './block-labels.ts'
import {
  adapterId,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvEvent,
  type KvRemoved,
  type KvStored,
  type KvTransition,
} from './kv-event.ts'
import { type KvEventFields, PLAIN_KEYS } from './kv-event-fields.ts'
import { WrongTypeError } from './message-pack-reader.ts'
import { ADAPTER, ALL_SEPARATORS } from './separators.ts'

/** Undefined: the tag is unknown. Throws WrongTypeError. */
export function toEvent(tag: string, fields: KvEventFields): KvEvent | undefined {
  switch (tag) {
    case 'BlockStored':
      return toStored(fields)
    case 'BlockRemoved':
      return toRemoved(fields)
    case 'AllBlocksCleared':
      return fields.isWithdrawn ? KV_WITHDRAWN : KV_CLEARED
    case 'CxlStateTransition':
      return toTransition(fields)
    default:
      return undefined
  }
}

/** In front of the salt where Dynamo passes it on to an engine. */
const SALT_PREFIX = 'dynamo-cache-salt:'

function saltOf(text: string | undefined): string | undefined {
  return text?.startsWith(SALT_PREFIX) === true ? text.slice(SALT_PREFIX.length) : text
}

const NO_WORDS = new Int32Array(0)

function toStored(fields: KvEventFields): KvStored {
  if (fields.hashes === undefined) throw new WrongTypeError('no block hashes')
  if (fields.localHashes !== undefined) requireHashesAlone(fields)
  const extraKeys = fields.extraKeys
  let cacheSalt = fields.cacheSalt
  let hasUnknownExtraKeys = fields.hasMediaInfos
  if (extraKeys !== undefined && extraKeys !== PLAIN_KEYS) {
    hasUnknownExtraKeys ||= extraKeys.hasOthers
    for (let block = 0; block < extraKeys.texts.length; block++) {
      const texts = extraKeys.texts[block]!
      // The adapter stands first, in every block; the salt stands in the first block only.
      let i = 0
      if (i < texts.length && texts[i] === fields.loraName) i++
      if (i < texts.length && block === 0) cacheSalt ??= saltOf(texts[i])
      if (i < texts.length && saltOf(texts[i]) === cacheSalt) i++
      if (i < texts.length) hasUnknownExtraKeys = true
    }
  }
  return {
    kind: 'stored',
    hashes: fields.hashes,
    parent: fields.parent,
    tokens: fields.tokens ?? NO_WORDS,
    blockSizeTokens: fields.blockSizeTokens,
    tier: fields.tier,
    isLocal: (fields.locality ?? 'LOCAL') === 'LOCAL',
    loraName: fields.loraName,
    loraId: adapterId(fields.loraId),
    cacheSalt,
    mediaHashes: extraKeys?.media,
    hasUnknownExtraKeys,
    group: fields.group,
    attention: fields.attention,
    sessionId: fields.sessionId,
    // Extra keys are all that went into the hashes beside tokens.
    tells: fields.told ?? toldBy(fields),
    labels: toLabels(fields, fields.hashes.length / 2),
    localHashes: fields.localHashes,
  }
}

/**
 * Local hashes say all that a block holds, and nothing of a salt: a store that says more of it contradicts
 * them, or is of a chain that other prompts must not find.
 */
function requireHashesAlone({ tokens, cacheSalt, extraKeys, hasMediaInfos }: KvEventFields): void {
  const beside =
    tokens !== undefined
      ? 'token_ids'
      : cacheSalt !== undefined
        ? 'cache_salt'
        : extraKeys !== undefined
          ? 'extra_keys'
          : hasMediaInfos
            ? 'block_mm_infos'
            : undefined
  if (beside !== undefined) throw new WrongTypeError(`local_words beside ${beside}`)
}

function toldBy({ extraKeys, loraId, tells }: KvEventFields): number {
  return extraKeys !== undefined ? ALL_SEPARATORS : tells | (loraId === undefined ? 0 : ADAPTER)
}

function toLabels({ experts, places, membersLeftOut }: KvEventFields, blocks: number): KvLabels | undefined {
  if (experts === undefined && places === undefined) return undefined
  const labels = { experts: byBlock(experts, blocks), places: byBlock(places, blocks) }
  if (labels.experts.length === 0 && labels.places.length === 0) return undefined
  return membersLeftOut === 0 ? labels : { ...labels, membersLeftOut }
}

function toTransition({ hashes, state, poolId, workers }: KvEventFields): KvTransition {
  if (hashes === undefined) throw new WrongTypeError('no block hashes')
  if (state === undefined) throw new WrongTypeError('no new state')
  return { kind: 'transition', hashes, state, poolId, accessibleWorkers: workers ?? NO_WORDS }
}

function toRemoved(fields: KvEventFields): KvRemoved {
  if (fields.hashes === undefined) throw new WrongTypeError('no block hashes')
  return {
    kind: 'removed',
    hashes: fields.hashes,
    tier: fields.tier,
    // A store at an unknown place is not the worker's; a removal may be.
    isLocal: fields.locality !== 'REMOTE',
    group: fields.group,
  }
}
