/**
 * Fifty tabs of the page at one router under load, read by programs: each gets every update, as often as
 * promised.
 */

import t from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { type Fleet, startFleet, until } from './fleet.ts'

const TABS = 50
const UPDATE_MS = 250
const SECTIONS = ['beat', 'decisions', 'fleet', 'house', 'map', 'pays', 'waiting', 'whatIf']

/** The messages of a tab, in order. */
class Tab {
  /** By the name of the event, its data. */
  readonly told = new Map<string, string[]>()
  /** Before it was asked for. */
  readonly openedMs: number
  readonly whenClosed: Promise<void>
  readonly #close: () => void

  constructor({ body }: Awaited<ReturnType<Fleet['open']>>, openedMs: number) {
    this.openedMs = openedMs
    this.#close = () => body.destroy()
    this.whenClosed = this.#read(body)
  }

  decisions(): readonly string[] {
    return this.told.get('decisions') ?? []
  }

  close(): void {
    this.#close()
  }

  async #read(body: AsyncIterable<unknown>): Promise<void> {
    let text = ''
    try {
      for await (const piece of body) {
        const frames = (text + String(piece)).split('\n\n')
        text = frames.pop()!
        for (const frame of frames) {
          const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(frame) ?? []
          this.told.set(name!, [...(this.told.get(name!) ?? []), data!])
        }
      }
    } catch {
      // It was closed from here.
    }
  }
}

async function openTab(fleet: Fleet): Promise<Tab> {
  const openedMs = performance.now()
  return new Tab(await fleet.open('/page/live'), openedMs)
}

t.test('each of fifty tabs gets every state, at most four a second', async t => {
  const fleet = await startFleet({ engines: [{}, {}], router: ['--page-tabs-max', String(TABS)] })
  t.teardown(() => fleet.stop())
  const tabs: Tab[] = []
  for (let i = 0; i < TABS; i++) tabs.push(await openTab(fleet))
  await until('each tab has every section', () =>
    tabs.every(({ told }) => SECTIONS.every(name => told.has(name))) ? true : undefined,
  )
  for (const { told } of tabs) t.strictSame([...told.keys()].sort(), SECTIONS)

  const seen = tabs[0]!.decisions().length
  let last = ''
  for (let i = 0; tabs[0]!.decisions().length < seen + 8; i++) {
    const body = { model: MODEL, prompt: `${'a prompt of many words '.repeat(10)}${i}`, max_tokens: 3 }
    const { status, headers } = await fleet.send('/v1/completions', { body })
    t.equal(status, 200)
    last = headers['x-homing-decision']!
  }
  await fleet.drained()
  await until('all tabs know the same last state, with the last decision', () => {
    const lasts = new Set(tabs.map(tab => tab.decisions().at(-1)))
    return lasts.size === 1 && [...lasts][0]!.includes(last) ? true : undefined
  })
  const atMs = performance.now()
  const [first] = tabs
  for (const [i, tab] of tabs.entries()) {
    // A later tab has missed only the beginning.
    t.strictSame(tab.decisions().slice(-8), first!.decisions().slice(-8), `tab ${i}`)
    const updatesMax = Math.floor((atMs - tab.openedMs) / UPDATE_MS) + 2
    for (const [name, all] of tab.told)
      t.ok(all.length <= updatesMax, `tab ${i}: ${all.length} of ${name}, at most ${updatesMax}`)
  }

  const refused = await fleet.send('/page/live')
  t.equal(refused.status, 503)
  t.match(refused.json, { error: { code: 'overloaded', message: /50 are open \(--page-tabs-max\)/ } })
  t.equal(refused.headers['retry-after'], '1')
  const figures = async (): Promise<string> => (await fleet.send('/metrics')).text
  t.match(await figures(), /^homing_page_open_tabs 50$/m)
  t.match(await figures(), /^homing_page_closed_tabs_total\{reason="refused"\} 1$/m)
  first!.close()
  await first!.whenClosed
  await until('there is room for another', async () =>
    (await figures()).includes('homing_page_open_tabs 49\n') ? true : undefined,
  )
  const next = await openTab(fleet)
  await until('the next is told all at once', () => (next.decisions().length > 0 ? true : undefined))
  t.ok(next.decisions()[0]!.includes(last))
  for (const tab of [...tabs, next]) tab.close()
  await until('nobody reads any more', async () =>
    (await figures()).includes('homing_page_open_tabs 0\n') ? true : undefined,
  )
})
