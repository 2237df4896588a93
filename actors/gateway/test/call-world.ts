/**
 * The gateway's world with a router that places requests on ports that a test names and serves as workers.
 */

import type { Decision } from '@homing/placement'
import type { Test } from 'tap'
import type { UpstreamRequest } from '../src/worker-call.ts'
import type { ClientCall } from './client-call.ts'
import { start as startWorld } from './gateway-world.ts'
import { DECISION, READ, WORKER_HOST } from './sample-records.ts'
import { utf8 as bytes, textOf as text } from './utf8.ts'

export function decisionFor(port: number, id = `decision-${port}`): Decision {
  return {
    ...DECISION,
    id,
    workerId: `${WORKER_HOST}:${port}`,
    worker: `${WORKER_HOST}:${port}/0`,
    workerSlot: port,
    origin: `http://${WORKER_HOST}:${port}`,
    overlapBlocks: 0,
    bestOverlapBlocks: 0,
    lookupMs: 0,
    decisionMs: 0,
    predictedTokens: 0,
  }
}

interface Limits {
  readonly retriesMax?: number
  readonly silenceMsMax?: number
  readonly requestMsMax?: number
  readonly audit?: boolean
}

/** A gateway whose router decides for these ports, one after the other, and then refuses. */
export async function start(t: Test, ports: readonly number[], { audit = true, ...limits }: Limits = {}) {
  const left = [...ports]
  const upstream: { next: Partial<Decision>; usageEdit: UpstreamRequest['usageEdit'] } = {
    next: {},
    usageEdit: undefined,
  }
  const gate = { open: Promise.resolve() }
  const world = await startWorld(
    t,
    {
      audit,
      exchangeLimits: {
        retriesMax: 2,
        retryShare: 0.2,
        stallMsMin: 10_000,
        silenceMsMax: 60_000,
        requestMsMax: 0,
        ...limits,
      },
    },
    {
      read: () => ({
        kind: 'read',
        request: { ...READ, promptTokens: 10, usageEdit: upstream.usageEdit },
      }),
      decide: async () => {
        const port = left.shift()
        const more = upstream.next
        upstream.next = {}
        await gate.open
        if (port !== undefined) return { kind: 'decided', decision: { ...decisionFor(port), ...more } }
        const error = { code: 'HOMING_ROUTER_NO_WORKER', message: 'cannot place it', details: {} }
        return { kind: 'refused', error }
      },
    },
    { hasWorker: false },
  )
  const calls: ClientCall[] = []
  /** A client sends a request, which the router places on this port. */
  const dispatch = (
    port: number,
    { body, usageEdit, path = '/v1/completions' }: Partial<UpstreamRequest> = {},
    decision: Partial<Decision> = {},
  ): void => {
    left.unshift(port)
    Object.assign(upstream, { next: decision, usageEdit })
    const headers = { 'x-a': '1', 'x-request-id': 'request-1' }
    calls.push(world.send('POST', path, { headers, body: text(body ?? bytes('{}')) }))
  }
  const last = (): ClientCall => calls.at(-1)!
  return { ...world, dispatch, last, gate }
}

const OWN_EVENT = /data: \{"error":.*"code":"(\w+)"\}\}\n\n$/

/** The answer of the last client: status, text without our own error, how it ended. */
export async function answerOf({ system, last }: Pick<Awaited<ReturnType<typeof start>>, 'system' | 'last'>) {
  await system.settle()
  const { status, body, end } = last()
  const event = OWN_EVENT.exec(body)
  if (event !== null) return { status, body: body.slice(0, event.index), end: `${event[1]} after the head` }
  if (end === 'broken') return { status, body, end: 'cut after the head' }
  if (end === 'complete' && body.startsWith('{"error":{"message"')) {
    return {
      status: undefined,
      body,
      end: String((JSON.parse(body) as { error: { code: string } }).error.code),
    }
  }
  return { status, body, end }
}
