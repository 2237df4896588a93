/**
 * Findings about the part of a request that a worker takes, beside the other workers of its model
 * (docs/disaggregation.md). Pure.
 */

import { canHandOver, handoverOf, roleOf } from '@homing/fleet'
import { type Finding, note, ok, warning } from './diagnosis.ts'
import type { ReachedEvidence, RolePeer } from './evidence.ts'

const KV_CONNECTOR = `start it with --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'`

const UNSENT = note(
  'request',
  'no request of its own was sent: an engine of this kind takes none without a prefill or decode worker beside it',
)

/** A worker that is looked at alone gets notes: its partners may be elsewhere. */
export function roleFindings(evidence: ReachedEvidence): readonly Finding[] {
  const role = roleOf(evidence.facts)
  if (role === 'both') return []
  return [
    role === 'prefill' ? prefillFinding(evidence) : decodeFinding(evidence),
    ...bootstrapFindings(evidence),
    ...offerFindings(evidence),
    ...(evidence.needsPartner ? [UNSENT] : []),
  ]
}

function prefillFinding({ facts, self, peers }: ReachedEvidence): Finding {
  const others = peers.filter(peer => roleOf(peer) !== 'prefill')
  const takers = others.filter(peer => canHandOver(self, peer))
  const way = handoverOf(facts)
  const of = `it computes prompts for others (role=prefill, ${facts.role.source})`
  if (takers.length > 0) return ok('role', `${of}, and hands them over by ${way} to ${namesOf(takers)}`)
  const [other] = others
  if (other === undefined) {
    return open(
      peers,
      `${of}, and no other worker of its model that was looked at takes them over`,
      `add one: --worker 'http://HOST:PORT?role=decode'; until then it gets nothing`,
    )
  }
  const why =
    handoverOf(other) === way
      ? `${other.id} ${roleOf(other) === 'both' ? 'was not started for decode' : `has not its taints ${self.taints.join(', ')}`}`
      : `it hands over by ${way}, and ${other.id} takes over by ${handoverOf(other)}`
  return warning(
    'role',
    undefined,
    `${of}, but no worker of its model can take them over: ${why}`,
    'start both with the same engine and connector, and give both the same topology; handover= in their URLs corrects what is taken for granted',
  )
}

function decodeFinding({ facts, self, peers }: ReachedEvidence): Finding {
  const givers = peers.filter(peer => roleOf(peer) === 'prefill' && canHandOver(peer, self))
  const of = `it goes on with prompts that others compute (role=decode, ${facts.role.source})`
  if (givers.length > 0) return ok('role', `${of}: ${namesOf(givers)}`)
  if (handoverOf(facts) === 'kv_transfer')
    return note('role', `${of}, and none was looked at that does: it gets requests whole`)
  return open(
    peers,
    `${of}, and no prefill worker of its model was looked at: an engine of this kind takes no request without one`,
    `add one: --worker 'http://HOST:PORT?role=prefill'`,
  )
}

/** The port where decode engines are to find it. */
function bootstrapFindings({ facts }: ReachedEvidence): readonly Finding[] {
  const { bootstrap } = facts
  if (bootstrap === undefined) return []
  const at = `${bootstrap.host}:${bootstrap.port.value}`
  if (bootstrap.port.source !== 'default') return [ok('role', `decode engines are to find it at ${at}`)]
  return [
    note(
      'role',
      `that decode engines find it at ${at} is a guess: it does not tell its bootstrap port`,
      'name it if it is another: ?bootstrap_port=PORT',
    ),
  ]
}

/** What the answer of its own request hands over. */
function offerFindings({ own }: ReachedEvidence): readonly Finding[] {
  if (own?.handsOver === undefined) return []
  if (own.handsOver) return [ok('role', 'its answer says where the computed prompt is')]
  return [
    warning(
      'role',
      undefined,
      'its answer hands nothing over: each prompt is computed again where it is answered',
      KV_CONNECTOR,
    ),
  ]
}

function open(peers: readonly RolePeer[], text: string, remedy: string): Finding {
  return peers.length === 0 ? note('role', text, remedy) : warning('role', undefined, text, remedy)
}

const NAMED_MAX = 3

function namesOf(peers: readonly RolePeer[]): string {
  const named = peers.slice(0, NAMED_MAX).map(({ id }) => id)
  return peers.length > NAMED_MAX
    ? `${named.join(', ')} and ${peers.length - NAMED_MAX} more`
    : named.join(', ')
}
