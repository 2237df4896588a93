/** A source of workers over real sockets, and what it says. */

import assert from 'node:assert/strict'
import { silentLog, systemClock, systemRandom } from '@homing/base'
import {
  type ClusterAccess,
  type FoundList,
  KubernetesSource,
  type SourceHandler,
  type WorkerSource,
} from '@homing/discovery'
import { systemTransport } from '@homing/transport'
import type { Test } from 'tap'

const WAIT_MS_MAX = 120_000

/** Collects what a source tells, and waits for a finding. */
export class Listener implements SourceHandler {
  source!: WorkerSource
  readonly failures: string[] = []
  recoveries = 0
  readonly #waiting = new Set<() => void>()

  changed(): void {
    for (const look of [...this.#waiting]) look()
  }

  failed(reason: string): void {
    this.failures.push(reason)
    this.changed()
  }

  recovered(): void {
    this.recoveries++
    this.changed()
  }

  /** 'url state', sorted. */
  get said(): readonly string[] | undefined {
    return saidBy(this.source.finding())
  }

  /** Resolves when it holds: looked at after each change, and between. */
  until(what: string, holds: () => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(look)
        clearInterval(looks)
        const seen = JSON.stringify({ said: this.said, failures: this.failures })
        reject(new Error(`waited in vain until ${what}; last seen: ${seen}`))
      }, WAIT_MS_MAX)
      const look = (): void => {
        if (!holds()) return
        clearTimeout(timer)
        clearInterval(looks)
        this.#waiting.delete(look)
        resolve()
      }
      const looks = setInterval(look, 10)
      this.#waiting.add(look)
      look()
    })
  }

  async says(lines: readonly string[]): Promise<void> {
    const wanted = [...lines].sort()
    await this.until(
      `it says ${JSON.stringify(wanted)}`,
      () => JSON.stringify(this.said) === JSON.stringify(wanted),
    )
    assert.deepEqual(this.said, wanted)
  }
}

export function saidBy(finding: FoundList | undefined): readonly string[] | undefined {
  return finding?.workers.map(({ url, state }) => `${url} ${state}`).sort()
}

export function transportFor(t: Test) {
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  t.teardown(() => transport.close())
  return transport
}

export function accessTo(server: string, more: Partial<ClusterAccess> = {}): ClusterAccess {
  return {
    server,
    namespace: 'default',
    authorities: undefined,
    serverName: undefined,
    token: undefined,
    identity: undefined,
    ...more,
  }
}

export function kubernetes(
  t: Test,
  access: ClusterAccess,
  place: { readonly services?: readonly string[]; readonly selector?: string; readonly port?: string } = {},
): Listener {
  const listener = new Listener()
  listener.source = new KubernetesSource(
    {
      access,
      namespace: access.namespace,
      services: place.services ?? ['vllm'],
      selector: place.selector,
      port: place.port,
    },
    { http: transportFor(t).http, clock: systemClock, random: systemRandom, handler: listener },
  )
  t.teardown(() => listener.source.close())
  return listener
}
