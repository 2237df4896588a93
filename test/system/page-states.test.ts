/** The page in a real browser, in states that a small fleet does not come into by itself. */

import type { MapNode, MapSection } from '@homing/page'
import t from 'tap'
import { CHROMIUM, SCHEMES, SIZES, startBrowser, Tab } from './page-browser.ts'
import { Stage } from './page-stage.ts'

if (CHROMIUM === undefined) t.plan(0, 'chromium is not installed')

const browser = CHROMIUM === undefined ? (undefined as never) : await startBrowser()
t.teardown(() => browser?.close())

const POINTED = "document.querySelector('[data-field=pointed]').innerText"
/** Worker keys 8 … 23 of 24 are told apart. */
const workers = Array.from({ length: 16 }, (_, at) => `10.0.0.${8 + at}:8000/0`)

const node = (name: string, of: Partial<MapNode>): MapNode => ({
  parent: -1,
  hash: name.padStart(16, '0'),
  depth: 0,
  length: 10,
  holders: [],
  holders_total: 1,
  blocks: 10,
  by_worker: [],
  ...of,
})

const map: MapSection = {
  block_size: 16,
  blocks: 1000,
  is_whole: true,
  workers,
  workers_total: 24,
  nodes: [
    node('a', { holders: workers.map((_, at) => at), holders_total: 24, blocks: 900 }),
    node('b', { parent: 0, depth: 10, holders: [12, 13, 14], holders_total: 3, blocks: 400 }),
    node('c', { parent: 0, depth: 10, holders_total: 2, blocks: 200 }),
    node('d', { blocks: 100, holders: [3], length: 15 }),
    node('e', { parent: 1, depth: 20, holders_total: 0, blocks: 0, by_worker: [] }),
  ],
}

t.test(
  'all holders are counted, some are named, and the page says that others are not told apart',
  async t => {
    const stage = await Stage.start({ map })
    t.teardown(() => stage.stop())
    const tab = await Tab.open(browser, stage.url, 'map')
    await tab.says('Of 24 workers, the 16 with most blocks are told apart')
    const cells = await tab.page.$$eval('tbody tr', rows =>
      rows.map(row => [...row.querySelectorAll('td')].slice(4).map(cell => cell.textContent)),
    )
    t.strictSame(cells, [
      ['24', '10.0.0.8:8000/0, 10.0.0.9:8000/0, 10.0.0.10:8000/0, 10.0.0.11:8000/0 and 20 more'],
      ['3', '10.0.0.20:8000/0, 10.0.0.21:8000/0, 10.0.0.22:8000/0'],
      ['2', '2 that are not told apart'],
      ['1', '10.0.0.11:8000/0'],
      ['0', 'nobody any more'],
    ])
    // 10 · (24 + 3 + 2) + 15 copies, of 45 blocks.
    await tab.says(`3 are held by more than one worker; ${((100 * 260) / 305).toFixed(1)} % of their blocks`)
    const labels = await tab.page.$$eval('.map-label', all => all.map(one => one.textContent))
    t.strictSame(labels, ['×24 0000', '×3 0000', '×2 0000', '×1 0000'])
    const shades = await tab.page.$$eval('.icicle rect', all => all.map(one => one.getAttribute('class')))
    t.strictSame(shades, ['map-3', 'map-3', 'map-2', 'map-1'])
  },
)

t.test('arrow keys go from box to box, and a line says where one is', async t => {
  const stage = await Stage.start({ map })
  t.teardown(() => stage.stop())
  const tab = await Tab.open(browser, stage.url, 'map')
  await tab.page.waitForSelector('.icicle')
  await tab.page.focus('#map-worker')
  await tab.page.keyboard.press('Tab')
  t.equal(await tab.ask("document.activeElement.classList.contains('icicle')"), true, 'the map has its turn')
  t.equal(await tab.ask("document.querySelector('[data-field=pointed]').getAttribute('aria-live')"), 'polite')
  const goes = async (key: Parameters<typeof tab.page.keyboard.press>[0], place: string): Promise<void> => {
    await tab.page.keyboard.press(key)
    await tab.says(place)
  }
  await goes('ArrowDown', '000000000000000a: 160 tokens from 0 tokens on')
  await goes('ArrowDown', '000000000000000b: 160 tokens from 160 tokens on')
  await goes('ArrowRight', '000000000000000c: 160 tokens from 160 tokens on')
  t.match(await tab.ask(POINTED), 'held by 2 that are not told apart')
  await goes('ArrowRight', '000000000000000d: 240 tokens from 0 tokens on')
  await goes('ArrowLeft', '000000000000000a:')
  await goes('ArrowDown', '000000000000000b:')
  // An update in which everything has another place: the box stays the same.
  const nodes = [map.nodes[3]!, map.nodes[0]!, { ...map.nodes[1]!, parent: 1, blocks: 500 }]
  stage.tell({ map: { ...map, nodes } })
  await tab.says('000000000000000b: 160 tokens from 160 tokens on; with all that follows 500 copies')
  t.equal(await tab.ask("document.querySelectorAll('.map-pointed').length"), 1)
  await goes('ArrowUp', '000000000000000a:')
  await goes('Home', '000000000000000d:')
  await goes('Escape', 'Point at a box')
  for (const size of SIZES)
    for (const scheme of SCHEMES) {
      await tab.look(size, scheme)
      t.strictSame(await tab.faults(), [], `axe: ${size.width} ${scheme}`)
      t.ok((await tab.overflow()) <= 0, `as wide as its window: ${size.width}`)
      await tab.picture(`many-map-${size.width}-${scheme}`)
    }
  t.strictSame(tab.errors, [])
})
