/** A fleet of simulated engines, and a router that Envoys ask about requests to them. */

import { type DemoFleet, type RunningRouter, startDemoFleet, startRouter } from 'homing'
import type { Test } from 'tap'
import type { GivenRouterSettings } from '../src/start-router.ts'

export interface PickerWorld {
  readonly fleet: DemoFleet
  readonly router: RunningRouter
  /** Port of the picker, and of its health service. */
  readonly port: number
  readonly healthPort: number
  /** 'ip:port' of each engine. */
  readonly endpoints: readonly string[]
}

/** Engines that take no time. */
const SPEED = 1000

/** `asGiven`: how the router is told of its workers. */
export async function startPicker(
  t: Test,
  given: Partial<GivenRouterSettings> = {},
  engines = 3,
  asGiven: (workers: readonly string[]) => readonly string[] = workers => workers,
): Promise<PickerWorld> {
  const fleet = await startDemoFleet({ demoEngines: engines, demoSpeed: SPEED, logLevel: 'error' })
  t.teardown(() => fleet.stop())
  const router = await startRouter({
    host: '127.0.0.1',
    port: 0,
    workers: asGiven(fleet.workers),
    pickerPort: 0,
    pickerHealthPort: 0,
    logLevel: 'error',
    shutdownTimeoutMs: 5000,
    ...given,
  })
  t.teardown(() => router.stop())
  const { port, healthPort } = router.picker!
  const endpoints = fleet.workers.map(url => new URL(url).host)
  return { fleet, router, port, healthPort: healthPort ?? 0, endpoints }
}

export function completion(model: string, prompt: string, more: object = {}): string {
  return JSON.stringify({ model, prompt, max_tokens: 4, ...more })
}

interface WorkerView {
  readonly worker_keys: readonly {
    readonly load: { readonly requests: number; readonly prefill_tokens: number }
  }[]
}

/** What is booked at all workers. */
export async function booked({ router }: PickerWorld): Promise<{ requests: number; prefillTokens: number }> {
  const { workers } = (await (await fetch(`${router.adminUrl}/workers`)).json()) as {
    readonly workers: readonly WorkerView[]
  }
  const loads = workers.flatMap(worker => worker.worker_keys.map(({ load }) => load))
  return {
    requests: loads.reduce((sum, { requests }) => sum + requests, 0),
    prefillTokens: loads.reduce((sum, load) => sum + load.prefill_tokens, 0),
  }
}

/** The receipt of a decision, once it is complete. */
export async function settled({ router }: PickerWorld, id: string): Promise<Record<string, unknown>> {
  for (;;) {
    const answer = await fetch(`${router.adminUrl}/decisions/${id}`)
    const receipt = (await answer.json()) as Record<string, unknown>
    if (receipt['delivered'] !== null && receipt['delivered'] !== undefined) return receipt
    await new Promise(setImmediate)
  }
}
