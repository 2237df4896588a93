/** Blocks in pools: what a router credits as reachable there, and what its first engine has there. */

import type { SimulatedFleet } from '../simulation/simulated-fleet.ts'

/** Engine hashes, as 16 hexadecimal digits. */
export interface Pools {
  readonly credited: ReadonlySet<string>
  readonly there: ReadonlySet<string>
}

interface DumpedEvent {
  readonly event: {
    readonly data: {
      readonly stored?: {
        readonly blocks: readonly {
          readonly block_hash: string
          readonly cxl_metadata?: { readonly state: string }
        }[]
      }
      readonly cxl_state_transition?: { readonly block_hashes: readonly string[]; readonly new_state: string }
    }
  }
}

export async function poolsOf(fleet: SimulatedFleet): Promise<Pools> {
  const { body } = await fleet.ask({ method: 'GET', path: '/v1/router/dump_events' })
  // As numbers, hashes would be rounded.
  const text = Buffer.from(body)
    .toString()
    .replaceAll(/(?<=[[:,])\d+(?=[,\]}])/g, '"$&"')
  const credited = new Set<string>()
  for (const { event } of JSON.parse(text) as readonly DumpedEvent[]) {
    const { stored, cxl_state_transition: moved } = event.data
    for (const { block_hash: hash, cxl_metadata: place } of stored?.blocks ?? [])
      if (place?.state === 'cxl_pooled') credited.add(hexOf(hash))
    if (moved?.new_state === 'cxl_pooled') for (const hash of moved.block_hashes) credited.add(hexOf(hash))
  }
  const [rank] = fleet.engines[0]!.engine.state({ hasBlocks: true }).ranks
  return { credited, there: new Set(rank?.pooledBlocks) }
}

function hexOf(decimal: string): string {
  return BigInt(decimal).toString(16).padStart(16, '0')
}
