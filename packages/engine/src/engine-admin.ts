/**
 * Engine admin: the routes for tests, which stay open while the engine hangs or is down.
 *
 *   GET  /admin/state[?blocks=1]          what it published, holds, runs and answered
 *   GET, POST, DELETE /admin/faults       see engine-faults.ts; DELETE ends all of them
 *   POST /admin/restart {downMs?}         a new life: empty cache, other hashes, sequence 0, same ports;
 *                                         requests under way are cut; for downMs every other connection is
 *                                         cut too
 *   POST /admin/restart {inPlace: true, firstSequence?}
 *                                         a new life that only its events show: same process, same sockets, a
 *                                         sequence that begins at `firstSequence`
 *   POST /admin/kill                      everything is cut and closed; the owner of the engine is told
 */

import type { HttpExchange } from '@homing/transport'
import { parseObject, RefusedRequest } from './completion-request.ts'
import type { EngineFaults } from './engine-faults.ts'
import type { EngineDescription, EngineState } from './engine-state.ts'
import type { EventFaults } from './event-publisher.ts'
import { BODY_BYTES_MAX, sendJson } from './http-answer.ts'

/** The engine behind the door. */
export interface AdministeredEngine {
  describe(): EngineDescription
  state(options: { readonly hasBlocks?: boolean }): EngineState
  setFaults(body: Readonly<Record<string, unknown>>): void
  clearFaults(): void
  /** Resolves with its epoch when the new life can be used. */
  restart(downMs: number): Promise<number>
  restartInPlace(firstSequence: number): void
  kill(): Promise<void>
}

const DOWN_MS_MAX = 600_000

/** Answers a request under /admin. Throws RefusedRequest. */
export async function administer(engine: AdministeredEngine, exchange: HttpExchange): Promise<void> {
  switch (`${exchange.method} ${exchange.path}`) {
    case 'GET /admin/state': {
      const hasBlocks = new URLSearchParams(exchange.query).get('blocks') === '1'
      return sendJson(exchange, 200, { ...engine.describe(), ...engine.state({ hasBlocks }) })
    }
    case 'DELETE /admin/faults':
      engine.clearFaults()
      return sendJson(exchange, 200, faultState(engine))
    case 'POST /admin/faults':
      engine.setFaults(parseObject(await exchange.readBody(BODY_BYTES_MAX)))
      return sendJson(exchange, 200, faultState(engine))
    case 'GET /admin/faults':
      return sendJson(exchange, 200, faultState(engine))
    case 'POST /admin/restart': {
      const bytes = await exchange.readBody(BODY_BYTES_MAX)
      const body = bytes.length === 0 ? {} : parseObject(bytes)
      if (body['inPlace'] === true) {
        const first = Number(body['firstSequence'] ?? 0)
        if (!Number.isSafeInteger(first) || first < 0) {
          throw new RefusedRequest(
            400,
            'BadRequestError',
            `firstSequence is ${first}, use a whole number from 0`,
          )
        }
        engine.restartInPlace(first)
        return sendJson(exchange, 200, { epoch: engine.state({}).epoch })
      }
      const downMs = Number(body['downMs'] ?? 0)
      if (!(downMs >= 0 && downMs <= DOWN_MS_MAX)) {
        throw new RefusedRequest(400, 'BadRequestError', `downMs is ${downMs}, use 0 to ${DOWN_MS_MAX}`)
      }
      return sendJson(exchange, 200, { epoch: await engine.restart(downMs) })
    }
    case 'POST /admin/kill':
      sendJson(exchange, 200, { killed: true })
      return engine.kill()
  }
  sendJson(exchange, 404, { detail: 'Not Found' })
}

function faultState(engine: AdministeredEngine): EngineFaults & { readonly events: readonly EventFaults[] } {
  const { faults, ranks } = engine.state({})
  return { ...faults, events: ranks.map(rank => rank.faults) }
}
