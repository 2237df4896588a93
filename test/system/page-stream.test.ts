/**
 * The stream of the page in a real browser: over a restart of the router, with a key, below a path of a
 * proxy, and shared by tabs.
 */

import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { freePort } from '@homing/transport/testing'
import { startRouter } from 'homing'
import t from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { startFleet } from './fleet.ts'
import { CHROMIUM, promptOf, startBrowser, Tab, VIEWS } from './page-browser.ts'

if (CHROMIUM === undefined) t.plan(0, 'chromium is not installed')

const browser = CHROMIUM === undefined ? (undefined as never) : await startBrowser()
t.teardown(() => browser?.close())
t.setTimeout(600_000)

t.test('a router that is started anew under the page is found again, and the page says so', async t => {
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  const start = (port: number) =>
    startRouter({ workers: fleet.engines.map(({ url }) => url), port, host: '127.0.0.1', logLevel: 'silent' })
  // A port that no dialling socket is given while it is closed.
  const first = await start(await freePort())
  const tab = await Tab.open(browser, `${first.url}/`)
  await tab.says('1 of 1 workers are up')
  await first.stop(0)
  await tab.says('not connected', 'asking again', 'What is shown is of')
  await tab.picture('lost-fleet-1600-light')
  const second = await start(first.port)
  t.teardown(() => second.stop(0))
  await tab.live()
  await tab.says('The router was started anew while this page was open (1 ×)')
})

t.test('with a key the page asks for it, and below a path of a proxy it works the same', async t => {
  const folder = t.testdir({ key: 'open-sesame-2000\n' })
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  const workers = fleet.engines.map(({ url }) => url)
  const router = await startRouter({
    workers,
    port: 0,
    host: '127.0.0.1',
    adminKeyFile: join(folder, 'key'),
    logLevel: 'silent',
  })
  t.teardown(() => router.stop(0))
  const proxy = createServer((asked, answer) => {
    const passed = request(
      { port: router.port, path: asked.url!.replace('/some/path', ''), headers: asked.headers },
      answered => {
        answer.writeHead(answered.statusCode!, answered.headers)
        answered.pipe(answer)
      },
    )
    passed.on('error', () => answer.destroy())
    asked.pipe(passed)
  })
  await new Promise<void>(resolve => proxy.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    proxy.closeAllConnections()
    proxy.close()
  })
  const tab = await Tab.open(browser, `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/some/path/`)
  await tab.page.waitForSelector('input[type=password]')
  t.strictSame(await tab.faults(), [])
  await tab.picture('key-fleet-1600-light')
  await tab.page.type('input[type=password]', 'wrong')
  await tab.page.keyboard.press('Enter')
  await tab.says('does not take this key')
  await tab.ask("document.querySelector('input[type=password]').value = 'open-sesame-2000'")
  await tab.page.click('form button')
  await tab.live()
  await tab.says('1 of 1 workers are up')
})

t.test('ten tabs of a browser share one stream, which another takes over when its tab is closed', async t => {
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  const tabs: Tab[] = []
  for (let i = 0; i < 10; i++) tabs.push(await Tab.open(browser, `${fleet.url}/`, VIEWS[i % VIEWS.length]))
  for (const tab of tabs) await tab.says('live', '1 of 64 tabs open')
  await tabs[0]!.page.close()
  const body = { model: MODEL, prompt: promptOf(1), max_tokens: 4 }
  const { headers } = await fleet.send('/v1/completions', { body })
  await tabs[VIEWS.indexOf('decisions')]!.page.waitForSelector(
    `[data-decision="${headers['x-homing-decision']}"]`,
  )
  for (const tab of tabs.slice(1)) await tab.says('live')
})
