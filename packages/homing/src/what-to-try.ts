/** The text for newcomers after the ready line of a demo: three commands that prove the point. */

import type { RouterSettings } from '@homing/config'
import type { DemoFleet } from './demo-fleet.ts'
import type { RunningRouter } from './start-router.ts'

/** Long enough for several blocks, and the same every time it is pasted. */
const PROMPT =
  'A homing pigeon finds its way back over a thousand kilometres. ' +
  'Explain in plain words how it knows the direction, what it remembers of the way, and why it comes home.'

export function whatToTry(
  { url, adminUrl }: Pick<RunningRouter, 'url' | 'adminUrl'>,
  fleet: DemoFleet,
  { page, demoLoad, tlsCertificateFile }: Pick<RouterSettings, 'page' | 'demoLoad' | 'tlsCertificateFile'>,
): string {
  const body = JSON.stringify({
    model: fleet.model,
    messages: [{ role: 'user', content: PROMPT }],
    max_tokens: 16,
  })
  // What signed the certificate may be unknown to curl; then it goes by the certificate itself.
  const curl = tlsCertificateFile === undefined ? 'curl' : `curl --cacert '${tlsCertificateFile}'`
  const look = page === 'off' ? '' : `See it in a browser, as it happens: ${adminUrl}/\n`
  const load = demoLoad ? '\nIt has some load of its own (--demo-load): conversations that grow.' : ''
  if (fleet.prefillEngines > 0) {
    const answering = fleet.workers.length - fleet.prefillEngines
    return `
No --worker was named: this is a demo fleet of ${fleet.workers.length} simulated engines (real HTTP, real ZeroMQ, no GPU).${load}
Prefill and decode are apart: ${fleet.prefillEngines} compute prompts and hand them over, ${answering} answer.
${look}
1. Send a prompt. x-homing-prefill-worker has computed it, x-homing-worker has answered:

   ${curl} -si ${url}/v1/chat/completions -H 'content-type: application/json' -d '${body}'

2. Send it again: the same x-homing-prefill-worker, which has its blocks (of ${fleet.blockSizeTokens} tokens) now.
   The answer comes from where the load is low, whatever was cached there.

3. Look at the last decision: one receipt with two legs, the other one under \`prefill\`.
   And at the roles of the workers, and \`prefill_state\`:

   ${curl} -s '${adminUrl}/decisions?limit=1'
   ${curl} -s ${adminUrl}/workers

4. End an engine that computes prompts, and send another prompt: the others go on, and without any of
   them prompts stay with the engines that answer. The metrics count both:

   curl -s -X POST ${fleet.workers[0]!.replace(/\?.*/, '')}/admin/kill
   ${curl} -s ${adminUrl}/metrics | grep -E '^homing_gateway_(prefill_legs|decode_alone)_total'
`
  }
  return `
No --worker was named: this is a demo fleet of ${fleet.workers.length} simulated engines (real HTTP, real ZeroMQ, no GPU).${load}
${look}
1. Send a prompt. The headers tell where it went and why:

   ${curl} -si ${url}/v1/chat/completions -H 'content-type: application/json' -d '${body}'

2. Send it again: the same x-homing-worker, x-homing-overlap-blocks above 0, and as many
   cached_tokens in the usage (blocks of ${fleet.blockSizeTokens} tokens).

3. Look at the fleet and at the last decision, term by term:

   ${curl} -s ${adminUrl}/workers
   ${curl} -s '${adminUrl}/decisions?limit=1'
`
}
