/**
 * Metrics of all gateways, as one text. A gateway that does not answer counts with what it said last; where
 * none answers, the collector fails.
 */

import type { ActorRef } from '@homing/actor'
import { type SourceText, SummedTexts } from '@homing/metrics'
import type { FromConsole } from '../messages.ts'

/** What each gateway knows of the same thing: the sum would count it several times. */
const LARGEST = [
  'homing_gateway_remembered_responses',
  'homing_gateway_prefill_active_state',
  'homing_gateway_tls_expiry_timestamp_seconds',
  'homing_gateway_tls_files_broken_state',
  'homing_gateway_client_keys_files_broken_state',
  'homing_access_log_broken_state',
  'homing_worker_last_first_token_seconds',
  'homing_worker_last_token_gap_seconds',
  'homing_worker_last_prompt_tokens',
]

export function gatewayMetrics(
  gateways: () => Promise<readonly ActorRef<FromConsole>[]>,
  askMsMax: number,
): () => Promise<string> {
  const summed = new SummedTexts(LARGEST)
  const asked = (gateway: ActorRef<FromConsole>): Promise<SourceText> =>
    gateway.ask({ type: 'metrics' }, { timeout: askMsMax })
  return async () => {
    const all = await gateways()
    const [only] = all
    if (all.length === 1) return (await asked(only!)).text
    const answers = await Promise.allSettled(all.map(asked))
    for (const [index, answer] of answers.entries())
      if (answer.status === 'fulfilled') summed.take(all[index]!.name, answer.value)
    const failed = answers.find(({ status }) => status === 'rejected')
    if (answers.every(({ status }) => status === 'rejected')) throw (failed as PromiseRejectedResult).reason
    return summed.render()
  }
}
