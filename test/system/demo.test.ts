/**
 * The first minute of a newcomer: the demo fleet with its own load, the address of the page, and a cache hit
 * on it.
 */

import type { Browser } from 'puppeteer-core'
import t from 'tap'
import { startProcess, until } from './fleet.ts'
import { CHROMIUM, startBrowser, Tab } from './page-browser.ts'

const MINUTE_MS = 60_000
const HIT =
  "[...document.querySelectorAll('.decision-end')].find(end => /, [1-9][0-9,]* cached/.test(end.innerText))?.innerText"

const startMs = performance.now()
const router = await startProcess('router', [
  '--demo-load',
  ...['--port', '0', '--host', '127.0.0.1', '--log-level', 'error'],
])
t.teardown(async () => {
  router.kill('SIGTERM')
  await router.ended
})

t.test('the page has its address beside the first command to type', async t => {
  const lines = await until('it has said what to try', () =>
    router.outputLines.some(line => line.includes('/decisions?limit=1')) ? router.outputLines : undefined,
  )
  const address = lines.indexOf(`See it in a browser, as it happens: ${router.url}/`)
  const command = lines.findIndex(line => line.includes(`curl -si ${router.url}/v1/chat/completions`))
  t.ok(address > 0, lines.join('\n'))
  t.ok(command > address && command - address <= 5, 'the two are in one view')
  t.match(lines.join('\n'), /It has some load of its own \(--demo-load\)/)
})

t.test(
  'a newcomer sees a cache hit on the page within a minute',
  { skip: CHROMIUM === undefined && 'chromium is not installed', timeout: 2 * MINUTE_MS },
  async t => {
    const browser: Browser = await startBrowser()
    t.teardown(() => browser.close())
    const tab = await Tab.open(browser, `${router.url}/`, 'decisions')
    const said = await tab.page.waitForFunction(HIT, { timeout: MINUTE_MS - (performance.now() - startMs) })
    t.comment(
      `after ${((performance.now() - startMs) / 1000).toFixed(1)} s from the command: ${await said.jsonValue()}`,
    )
    t.match(await said.jsonValue(), /ok, [\d,]+ cached/)
    t.strictSame(tab.errors, [])
  },
)
