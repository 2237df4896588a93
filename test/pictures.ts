/**
 * The pictures of docs/page.md: `pnpm exec node test/pictures.ts` takes each view of the page, of a demo
 * fleet that has had its load for some minutes.
 *
 * Each is taken light and dark, on a telephone and on a large screen, into docs/pictures.
 */

import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { send, startProcess, until } from './system/fleet.ts'
import { SCHEMES, SIZES, startBrowser, Tab, VIEWS } from './system/page-browser.ts'

const FOLDER = join(import.meta.dirname, '../docs/pictures')
/** So that the hour has some bars, and prefixes have followers. */
const LOAD_MS = 150_000
/** Requests at once, of three tenants, for the view of what waits; they take the demo fleet some seconds. */
const BURST = 600
/** Of WebP. */
const QUALITY = 55

const router = await startProcess('router', [
  '--demo-load',
  // So that something may wait.
  ...['--router-queue-threshold', '0.05', '--what-if-cpu-share', '1'],
  ...['--port', '0', '--host', '127.0.0.1', '--log-level', 'error'],
])
const browser = await startBrowser()
try {
  mkdirSync(FOLDER, { recursive: true })
  const tab = await Tab.open(browser, `${router.url}/`)
  await setTimeout(LOAD_MS)
  await send(router.url, '/what_if', { body: { anyway: true } })
  await until('what if is answered', async () => {
    const { state } = (await send(router.url, '/what_if')).json
    return state === 'running' ? undefined : true
  })
  const takeAll = async (name: string): Promise<void> => {
    for (const size of SIZES)
      for (const scheme of SCHEMES) {
        await tab.look(size, scheme)
        const path = join(FOLDER, `${name}-${size.width}-${scheme}.webp`) as `${string}.webp`
        await tab.page.screenshot({ path, quality: QUALITY })
        console.log(path)
      }
  }
  for (const view of VIEWS) {
    await tab.look(SIZES[1], 'light')
    await tab.show(view)
    const answers = view === 'waiting' ? burst() : []
    if (view === 'waiting')
      await until('some wait', async () => {
        const shown = await tab.figures('main')
        return Number(shown['requests']) > 0 ? true : undefined
      })
    await takeAll(view)
    await Promise.all(answers)
  }
  await tab.look(SIZES[1], 'light')
  await tab.show('decisions')
  // One that was won by something, and is over.
  const won = await tab.page.waitForFunction(
    "[...document.querySelectorAll('[data-decision]')].find(line => / by \\d\\d\\.\\d ms before .*✓/.test(line.textContent))?.dataset.decision",
  )
  await tab.page.click(`[data-decision="${await won.jsonValue()}"]`)
  await tab.says('What the terms mean')
  await takeAll('receipt')
} finally {
  await browser.close()
  router.kill('SIGTERM')
  await router.ended
}

function burst(): readonly Promise<unknown>[] {
  return Array.from({ length: BURST }, (_, at) => {
    const body = {
      model: 'homing-demo',
      prompt: `${at} ${'waits for its turn '.repeat(400)}`,
      max_tokens: 20,
    }
    const headers = { 'x-tenant-id': ['chat', 'search', 'batch'][Math.floor(Math.sqrt((9 * at) / BURST))]! }
    return send(router.url, '/v1/completions', { body, headers })
  })
}
