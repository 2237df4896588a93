/**
 * The second half of the soak: a crowd in simulated systems, seed after seed, with faults and a ledger of
 * every message.
 */

import { runCrowd } from '../../packages/actor/test/simulation/crowd.ts'
import { type Measures, say } from '../harness.ts'

const PROGRESS_MESSAGES = 10_000_000

export interface SimulatedOptions {
  readonly seed: number
  /** Messages to simulate, at least. */
  readonly messages: number
  /** Of each seed under faults; some more come to rest after them. */
  readonly seedMessages: number
}

/** The figures of all seeds; each violation is printed. */
export async function soakSimulated({
  seed: first,
  messages,
  seedMessages,
}: SimulatedOptions): Promise<Measures> {
  const total = { messages: 0, asks: 0, deaths: 0, beyondWindow: 0, twice: 0, disorders: 0, stuckAsks: 0 }
  const lost: Record<string, number> = {}
  let violations = 0
  let windowMax = 0
  let seed = first
  let nextProgress = PROGRESS_MESSAGES
  const startMs = performance.now()
  for (; total.messages < messages; seed++) {
    const { ledger, deaths, violations: found } = await runCrowd(seed, seedMessages)
    total.messages += ledger.messages
    total.asks += ledger.asks
    total.deaths += deaths
    total.beyondWindow += ledger.beyondWindow
    total.twice += ledger.twice
    total.disorders += ledger.disorders
    total.stuckAsks += ledger.openAsks
    windowMax = Math.max(windowMax, ledger.windowMax)
    for (const [cause, count] of Object.entries(ledger.lost)) lost[cause] = (lost[cause] ?? 0) + count
    violations += found.length
    for (const violation of found) say(`  violated in seed ${seed}: ${violation}`)
    if (total.messages < nextProgress) continue
    nextProgress += PROGRESS_MESSAGES
    say(`  simulated ${total.messages} messages, ${seed + 1 - first} seeds, ${total.deaths} deaths`)
  }
  const seconds = (performance.now() - startMs) / 1000
  const one = (value: number, unit: string) => ({ value, unit })
  return {
    simulatedMessages: one(total.messages, 'messages'),
    simulatedSeeds: one(seed - first, 'seeds'),
    simulatedDeaths: one(total.deaths, 'lives ended'),
    simulatedAsks: one(total.asks, 'asks'),
    simulatedLostWithinWindow: one(lost['window'] ?? 0, 'messages'),
    simulatedWindowMax: one(windowMax, 'messages of a link and a death'),
    simulatedLostInMailboxes: one(lost['mailbox'] ?? 0, 'messages'),
    simulatedLostWithSender: one(lost['senderDead'] ?? 0, 'messages'),
    simulatedLostWithBothEnds: one(lost['bothDead'] ?? 0, 'messages'),
    simulatedLostBeyondWindow: one(total.beyondWindow, 'messages'),
    simulatedDuplicates: one(total.twice, 'messages'),
    simulatedDisorders: one(total.disorders, 'messages'),
    simulatedStuckAsks: one(total.stuckAsks, 'asks'),
    simulatedViolations: one(violations, 'violations'),
    simulatedMessagesPerS: one(total.messages / seconds, 'messages/s'),
  }
}
