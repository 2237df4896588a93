/**
 * Life cast: the two engines of a history of lives and their observers, as the script has them, its lie
 * included.
 *
 * Owns   nothing beyond what each of them owns.
 */

import type { Claim } from './life-claim.ts'
import { LifeEngine } from './life-engine.ts'
import { type LifeWorker, RouterObserver } from './life-router.ts'
import type { ObserverName, Script } from './life-script.ts'
import { ServiceObserver } from './life-service.ts'
import { SidecarObserver } from './life-sidecar.ts'
import type { Surroundings } from './life-surroundings.ts'
import type { Wire } from './life-wire.ts'

/** An observer, as it is looked at. */
export interface Looked {
  readonly wire: Wire
  readonly isUp: boolean
  claims(): Promise<readonly Claim[]>
}

export class LifeCast {
  readonly engine: LifeEngine
  readonly neighbour: LifeEngine
  readonly router: RouterObserver
  readonly sidecar: SidecarObserver
  readonly service: ServiceObserver
  readonly peer: ServiceObserver
  readonly #around: Surroundings

  constructor(script: Script, around: Surroundings) {
    const { kind, lie, checkpoints, writeMs, present, steps, sidecarBatches } = script
    this.#around = around
    const { clock, moments, origins, places } = around
    const shared = { kind, clock, moments, origins, host: places.host }
    this.engine = new LifeEngine({
      ...shared,
      ...places.engine,
      name: 'engine',
      rank: 0,
      transport: around.transport(),
    })
    this.neighbour = new LifeEngine({
      ...shared,
      ...places.neighbour,
      name: 'neighbour',
      rank: lie === 'ranks on one socket' ? script.seed % 2 : 0,
      transport: around.transport(),
    })
    const uses = (who: ObserverName) =>
      present.includes(who) || steps.some(step => 'who' in step && step.do === 'join' && step.who === who)
    const engine = this.engine
    const { eventsPort } = places.engine
    const { replayPort } = lie === 'neighbour replay' ? places.neighbour : places.engine
    const replay = kind.offersReplay ? `&replay=${replayPort}` : ''
    const workers: LifeWorker[] = []
    if (!kind.isPolled) {
      workers.push({
        who: 'router',
        engine,
        url: `${engine.origin}?events=${eventsPort}${replay}`,
        isBehindSidecar: false,
      })
    }
    if (uses('sidecar')) {
      workers.push({
        who: 'router behind the sidecar',
        engine,
        url: `http://${places.host}:${places.engine.httpPorts[1]}?events=${portOf(places.sidecarEvents)}&replay=${portOf(places.sidecarReplay)}`,
        isBehindSidecar: true,
      })
    }
    if (lie === 'one port, two workers') {
      workers.push({
        who: 'router, of the neighbour',
        engine: this.neighbour,
        url: `${this.neighbour.origin}?events=${eventsPort}${replay}`,
        isBehindSidecar: false,
      })
    }
    const options = { checkpoints, writeMs }
    const replayEndpoint = kind.offersReplay ? `tcp://${places.host}:${replayPort}` : undefined
    const endpoint = engine.eventsEndpoint
    const rank = { engine, instanceId: 7n, endpoint, replayEndpoint }
    const second = { engine: this.neighbour, instanceId: 8n, endpoint, replayEndpoint }
    const renumbered = {
      engine: this.neighbour,
      instanceId: 7n,
      endpoint: this.neighbour.eventsEndpoint,
      replayEndpoint: kind.offersReplay ? this.neighbour.replayEndpoint : undefined,
    }
    this.sidecar = new SidecarObserver(this.#around, engine, sidecarBatches)
    this.router = new RouterObserver(this.#around, workers, this.sidecar, options)
    this.service = new ServiceObserver(
      this.#around,
      'service',
      places.service,
      [rank],
      lie === 'one endpoint, two instances' ? second : undefined,
      undefined,
      options,
    )
    this.peer = new ServiceObserver(
      this.#around,
      'peer',
      places.peer,
      [lie === 'renumbered' ? renumbered : rank],
      undefined,
      this.service,
      options,
    )
    if (lie === 'ranks on one socket') {
      for (const { wire } of this.observers) wire.merged.set(endpoint, this.neighbour.eventsEndpoint)
    }
  }

  get observers(): readonly Looked[] {
    return [this.router, this.sidecar, this.service, this.peer]
  }

  async start(who: ObserverName): Promise<void> {
    const started = this.observer(who).start()
    if (started !== undefined) await this.#around.finish(started)
  }

  observer(who: ObserverName): {
    readonly wire: Wire
    readonly isUp: boolean
    start(): void | Promise<void>
    stop(isGraceful: boolean): Promise<void>
  } {
    if (who === 'router') return this.router
    if (who === 'sidecar') return this.sidecar
    return who === 'service' ? this.service : this.peer
  }

  wires(who: ObserverName | 'all'): readonly Wire[] {
    return who === 'all' ? this.observers.map(({ wire }) => wire) : [this.observer(who).wire]
  }

  async close(): Promise<void> {
    for (const who of ['router', 'peer', 'service', 'sidecar'] as const) await this.observer(who).stop(false)
    this.engine.close()
    this.neighbour.close()
    this.#around.close()
  }
}

function portOf(endpoint: string): string {
  return endpoint.slice(endpoint.lastIndexOf(':') + 1)
}
