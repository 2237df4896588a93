/** Histories of a cache whose hashes cover their prefix, as engines' do, for property tests. */

import { KV_CLEARED, type KvEvent, type KvStored, type KvTier, kvRemoved, kvStored } from '@homing/protocol'
import fc from 'fast-check'
import { wordsOf } from '../src/engine-hash.ts'

export const BLOCK_SIZE = 4

/** A chain is a list of small letters; its hash covers all of them. */
export function keyOf(chain: readonly number[]): bigint {
  let key = 0xcbf2_9ce4_8422_2325n
  for (const letter of chain) key = BigInt.asUintN(64, (key ^ BigInt(letter + 1)) * 0x0100_0000_01b3n)
  return key
}

export function tokensOf(chain: readonly number[]): Int32Array {
  return Int32Array.from(
    chain.flatMap(letter => Array.from({ length: BLOCK_SIZE }, (_, i) => letter * 10 + i)),
  )
}

/** The blocks of `chain` from `from` on. */
export function storedChain(
  chain: readonly number[],
  from: number,
  fields: { readonly tier?: KvTier; readonly loraName?: string | undefined; readonly group?: number } = {},
): KvStored {
  const keys = chain.map((_, i) => keyOf(chain.slice(0, i + 1)))
  return kvStored({
    hashes: wordsOf(keys.slice(from)),
    parent: from === 0 ? undefined : wordsOf([keys[from - 1]!]),
    tokens: tokensOf(chain.slice(from)),
    blockSizeTokens: BLOCK_SIZE,
    ...fields,
  })
}

const chain = fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 5 })
const tier = fc.constantFrom<KvTier>('device', 'device', 'host')

/** Stores of any part of a chain, removals of any block, now and then a clear. */
export const history: fc.Arbitrary<readonly KvEvent[]> = fc
  .array(
    fc.oneof(
      { weight: 6, arbitrary: fc.tuple(chain, fc.nat({ max: 4 }), tier) },
      { weight: 5, arbitrary: fc.tuple(chain, tier) },
      { weight: 1, arbitrary: fc.constant(undefined) },
    ),
    { maxLength: 40 },
  )
  .map(steps =>
    steps.map((step): KvEvent => {
      if (step === undefined) return KV_CLEARED
      if (step.length === 2) return kvRemoved({ hashes: wordsOf([keyOf(step[0])]), tier: step[1] })
      const [of, from, onTier] = step
      return storedChain(of, Math.min(from, of.length - 1), { tier: onTier })
    }),
  )
