/** The page in a real browser, asked and answered: what if, and what waits, as the JSON routes have it. */

import t from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { startFleet, until } from './fleet.ts'
import { CHROMIUM, load, promptOf, SCHEMES, SIZES, startBrowser, Tab } from './page-browser.ts'

if (CHROMIUM === undefined) t.plan(0, 'chromium is not installed')

const browser = CHROMIUM === undefined ? (undefined as never) : await startBrowser()
t.teardown(() => browser?.close())
t.setTimeout(600_000)

/** In rows of the page, or what they should be: their second cell. */
function waitingIn(rows: readonly (readonly unknown[])[]): number {
  return rows.reduce((sum, [, waiting]) => sum + Number(waiting), 0)
}

interface Button {
  readonly disabled: boolean
}

/** The answer of `/queue`. */
interface Queue {
  readonly requests: number
  readonly prompt_tokens: number
  readonly models: readonly { readonly classes: readonly QueueRow[]; readonly tenants: readonly QueueRow[] }[]
}

interface QueueRow {
  readonly policy_class?: string
  readonly tenant?: string
  readonly waiting: {
    readonly requests: number
    readonly uncached_tokens: number
    readonly oldest_ms: number | null
  }
  readonly served: { readonly requests: number; readonly share: number | null }
  readonly refused: Readonly<Record<string, number>>
}

t.test('what if is asked, followed and answered on the page, as /what_if has it', async t => {
  const fleet = await startFleet({ engines: [{}, {}], router: ['--what-if-cpu-share', '1'] })
  t.teardown(() => fleet.stop())
  const tab = await Tab.open(browser, `${fleet.url}/`, 'what-if')
  await tab.says('No request has ended yet')
  t.equal(await tab.page.$eval('.ask button', button => (button as unknown as Button).disabled), true)
  for (let round = 0; round < 10; round++) await load(t, fleet)
  await until('the page knows of them', async () => {
    return (await tab.figures('dl.figures'))['requests'] === '120' ? true : undefined
  })
  await tab.page.click('input[name="anyway"]')
  await tab.page.focus('input[name="anyway"]')
  await tab.page.keyboard.press('Enter')
  await tab.says('The last answer took', 'What would have been', 'one more worker', 'one worker less')
  const { answer, state } = (await fleet.send('/what_if')).json
  t.equal(state, 'done')
  t.equal(answer.requests, 120)
  const shown = await tab.page.$$eval('tbody tr', rows =>
    rows.map(row => [
      row.querySelector('[data-row]')?.getAttribute('data-row'),
      Number(row.querySelector('[data-field="ttft_ms_mean"]')?.getAttribute('data-value')),
    ]),
  )
  t.strictSame(
    shown,
    answer.rows.map((row: { readonly name: string; readonly ttft_ms_mean: number }) => [
      row.name,
      row.ttft_ms_mean,
    ]),
  )
  for (const size of SIZES)
    for (const scheme of SCHEMES) {
      await tab.look(size, scheme)
      t.strictSame(await tab.faults(), [], `axe: ${size.width} ${scheme}`)
      t.ok((await tab.overflow()) <= 0, `as wide as its window: ${size.width}`)
      await tab.picture(`answer-what-if-${size.width}-${scheme}`)
    }
  t.strictSame(tab.errors, [])
})

t.test('what waits, was served and was refused is on the page as in /queue', async t => {
  const limits = ['--router-queue-threshold', '0.001', '--router-queue-max-requests', '2']
  const fleet = await startFleet({ engines: [{}], router: ['--router-policy', 'linear', ...limits] })
  t.teardown(() => fleet.stop())
  await fleet.engines[0]!.faults({ hang: 'generation' })
  const send = (seed: number, tenant: string) =>
    fleet.send('/v1/completions', {
      // The prompts of streams count until their first token, which does not come here.
      body: { model: MODEL, prompt: promptOf(seed), max_tokens: 1, stream: true },
      headers: { 'x-tenant-id': tenant },
    })
  const answers = [send(0, 'first')]
  await until('the engine has a prompt', async () => {
    const [worker] = await fleet.workers()
    return worker!.worker_keys[0]!.load.prefill_tokens > 0 ? true : undefined
  })
  for (const [at, tenant] of ['early', 'late'].entries()) {
    answers.push(send(at + 1, tenant))
    await until('it waits', async () =>
      (await fleet.send('/queue')).json.requests === at + 1 ? true : undefined,
    )
  }
  t.equal((await send(3, 'late')).status, 503)
  // The total includes a request a moment before the rows do.
  const { requests, prompt_tokens, models } = await until('the rows of /queue tell of both', async () => {
    const queue = (await fleet.send('/queue')).json as Queue
    const rows = queue.models.flatMap(({ classes }) => classes)
    return rows.reduce((sum, { waiting }) => sum + waiting.requests, 0) === 2 ? queue : undefined
  })
  t.equal(requests, 2)
  const wanted = models.flatMap(({ classes, tenants }) =>
    [...classes, ...tenants].map(row => [
      row.policy_class ?? row.tenant,
      String(row.waiting.requests),
      String(row.waiting.uncached_tokens),
      row.waiting.oldest_ms !== null,
      String(row.served.requests),
      row.served.share === null ? '–' : `${(100 * row.served.share).toFixed(1)} %`,
      Object.entries(row.refused).flatMap(([reason, times]) => (times > 0 ? `${times} ${reason}` : [])),
    ]),
  )
  t.match(JSON.stringify(wanted), /"late","1",.*queue/, 'one of the late ones waits, one was refused')

  const tab = await Tab.open(browser, `${fleet.url}/`, 'waiting')
  await until('the page says what /queue says', async () => {
    const shown = await tab.figures('main')
    return shown['requests'] === String(requests) && shown['prompt_tokens'] === String(prompt_tokens)
      ? true
      : undefined
  })
  // A request whose turn is tried is in the total, and in no row for a moment.
  const shown = await until('its rows tell of both', async () => {
    const cells = await tab.page.$$eval('tbody tr', all =>
      all.map(row => [...row.querySelectorAll('td')].map(cell => cell.textContent)),
    )
    const rows = cells.map(([name, waiting, uncached, oldest, served, share, refused]) => [
      ...[name, waiting, uncached, oldest !== '–', served, share],
      refused === 'none' ? [] : refused!.split(', '),
    ])
    return waitingIn(rows) === waitingIn(wanted) ? rows : undefined
  })
  t.strictSame(shown, wanted)
  t.strictSame(await tab.faults(), [])
  await tab.look(SIZES[0], 'dark')
  t.ok((await tab.overflow()) <= 0, 'as wide as its window')
  await tab.picture('queued-waiting-360-dark')
  await fleet.engines[0]!.faults({ hang: 'off' })
  for (const answer of answers) t.equal((await answer).status, 200)
})
