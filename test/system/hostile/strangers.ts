/**
 * The strangers' process: takes its task from standard input, tells the evil engine's address, attacks until
 * it is told to stop, and tells what it did and which secrets it heard.
 *
 * Words to it and from it are objects over the channel of `fork`.
 */

import { once } from 'node:events'
import process from 'node:process'
import { seededRandom } from '@homing/base'
import { evilClient, evilPage } from './evil-client.ts'
import { startEvilEngine } from './evil-engine.ts'
import { evilPeer } from './evil-peer.ts'
import { Hearsay, pick, type Stranger } from './stranger.ts'

/** Before the attack. */
export interface Task {
  readonly seed: number
  readonly honestModel: string
  readonly evilModel: string
  /** Only deeds whose name, as 'client.bomb', fits; undefined: all. */
  readonly deeds: string | undefined
}

/** The attack. */
export interface Attack {
  readonly router: { readonly host: string; readonly port: number }
  readonly broker: string
  readonly login: { readonly user: string; readonly pass: string }
  readonly namespace: string
  readonly group: string
  readonly secretFile: string
  readonly secretVariable: string
  readonly honestWorker: string
  /** A deed begins so often for each stranger, in milliseconds. */
  readonly everyMs: number
}

export interface Findings {
  readonly deeds: Readonly<Record<string, number>>
  /** What a page was allowed to change. */
  readonly changes: readonly string[]
  readonly heard: readonly string[]
}

/** At one time for each stranger. */
const DEEDS_AT_ONCE_MAX = 16

const told = async <T>(): Promise<T> => (await once(process, 'message'))[0] as T
const tell = (word: unknown): void => void process.send!(word)

async function main(): Promise<void> {
  const { seed, honestModel, evilModel, deeds: wanted = '' } = await told<Task>()
  const random = seededRandom(seed)
  const hearsay = new Hearsay()
  const engine = await startEvilEngine(random, hearsay, honestModel, evilModel)
  tell({ url: engine.url })
  const attack = await told<Attack>()
  const changes: string[] = []
  const strangers: readonly Stranger[] = [
    engine,
    evilClient(attack.router, hearsay, honestModel, evilModel),
    evilPage(
      attack.router,
      hearsay,
      engine.url,
      attack.secretFile,
      attack.secretVariable,
      attack.honestWorker,
      what => changes.push(what),
    ),
    await evilPeer(attack.broker, hearsay, attack.login, attack.namespace, attack.group, engine.url),
  ]
  const deeds: Record<string, number> = {}
  const timers = strangers.map(stranger => {
    let open = 0
    const names = Object.keys(stranger.deeds).filter(name =>
      new RegExp(wanted).test(`${stranger.name}.${name}`),
    )
    return setInterval(() => {
      if (open >= DEEDS_AT_ONCE_MAX || names.length === 0) return
      const name = pick(random, names)
      const label = `${stranger.name}.${name}`
      deeds[label] = (deeds[label] ?? 0) + 1
      open++
      // A deed that is refused is as good as any other.
      void stranger.deeds[name]!(random)
        .catch(() => {})
        .finally(() => open--)
    }, attack.everyMs)
  })
  const secrets = await told<readonly string[]>()
  for (const timer of timers) clearInterval(timer)
  for (const stranger of strangers) stranger.stop()
  const findings: Findings = { deeds, changes, heard: hearsay.heard(secrets) }
  process.send!(findings, () => process.exit(0))
}

await main()
