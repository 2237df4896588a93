/**
 * `homing doctor` about live engines: all is well as documented, and a wrong port, topic and block size are
 * told.
 *
 * Runs with HOMING_REAL_ENGINES=1 and engines at HOMING_REAL_ENGINE_URLS, as sessions.test.ts does
 * (docs/engines.md).
 */

import { silentLog, systemClock, systemRandom } from '@homing/base'
import { type DiagnoseOptions, diagnoseWorkers } from '@homing/doctor'
import { parseWorkerSpec } from '@homing/fleet'
import { systemTransport } from '@homing/transport'
import t, { type Test } from 'tap'

const isLive = process.env['HOMING_REAL_ENGINES'] === '1'
const skip = isLive ? false : 'needs live engines: HOMING_REAL_ENGINES=1'
const urls = (process.env['HOMING_REAL_ENGINE_URLS'] ?? 'http://127.0.0.1:8100').split(',')

async function diagnose(t: Test, given: readonly string[], options: Partial<DiagnoseOptions> = {}) {
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  t.teardown(() => transport.close())
  return diagnoseWorkers(given.map(parseWorkerSpec), {
    transport,
    clock: systemClock,
    random: systemRandom,
    timeoutMs: 10_000,
    listenMs: 500,
    replayDepth: 'whole',
    sends: false,
    defaults: { blockSizeTokens: undefined },
    ...options,
  })
}

t.test('a live engine that is set up as documented is well, and tells of a request', { skip }, async t => {
  for (const found of await diagnose(t, urls, { sends: true })) {
    t.match(found, { verdict: 'well', trust: { reachable: 'exact' } }, JSON.stringify(found.findings))
    t.ok(found.findings.some(({ text }) => /^told of the \d+ blocks of its own request$/.test(text)))
    t.not(found.engine, 'unknown')
  }
})

t.test('what is given wrongly for a live engine is told', { skip }, async t => {
  const [url = ''] = urls
  const { origin } = new URL(url)
  const [asIs] = await diagnose(t, [url])
  const [events, replay] = ['events', 'replay'].map(use =>
    asIs!.doors.find(door => door.use === use)!.at.replace(/.*:/, ''),
  )
  for (const [query, about, text] of [
    [`events=${replay}&replay=${events}`, 'events', /a replay socket is there$/],
    [`events=${events}&replay=${replay}&block_size=7`, 'blocks', /^a block size of 7 is given/],
    [`events=1&replay=${replay}`, 'events', /:1: nothing listens there$/],
  ] as const) {
    const [found] = await diagnose(t, [`${origin}?${query}`], { timeoutMs: 3000 })
    t.match(found, { verdict: 'inexact', trust: { reachable: 'approximate' } })
    const warnings = found!.findings.filter(finding => finding.about === about && finding.level === 'warning')
    t.match(warnings[0], { text }, query)
  }
})
