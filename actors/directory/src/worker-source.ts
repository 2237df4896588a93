/** The source of workers that the settings name, opened with the capabilities of the directory. */

import type { ActorContext } from '@homing/actor'
import {
  type DnsName,
  DnsSource,
  type KubernetesPlace,
  KubernetesSource,
  type SourceHandler,
  type WorkerSource,
} from '@homing/discovery'
import { transportCapability } from '@homing/transport'
import type { DirectoryMessage } from './messages.ts'

/** Plain data. */
export type DiscoveryArgs =
  | ({ readonly kind: 'kubernetes' } & KubernetesPlace)
  | {
      readonly kind: 'dns'
      readonly names: readonly DnsName[]
      /** 'address' or 'address:port' each; none: those of the system. */
      readonly servers: readonly string[]
      readonly refreshMs: number
      readonly staleMsMax: number
    }

export function openSource(
  { clock, random, use }: ActorContext<DirectoryMessage>,
  args: DiscoveryArgs,
  handler: SourceHandler,
): WorkerSource {
  const transport = use(transportCapability)
  if (args.kind === 'kubernetes')
    return new KubernetesSource(args, { http: transport.http, clock, random, handler })
  const { names, servers, refreshMs, staleMsMax } = args
  const resolver = transport.nameResolver?.(servers)
  if (resolver === undefined) throw new Error('this transport resolves no names')
  return new DnsSource({ resolver, names, refreshMs, staleMsMax, clock, handler })
}
