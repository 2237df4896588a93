/**
 * The answers of a live engine, routed and direct, member for member: the table of
 * test/system/same-answers.test.ts.
 *
 * Runs with HOMING_REAL_ENGINES=1 and an engine at the first of HOMING_REAL_ENGINE_URLS (default
 * 127.0.0.1:8100). docs/engines.md shows how to start it; tools want `--enable-auto-tool-choice
 * --tool-call-parser hermes`, and a tool by name or a JSON schema a model that can hold to them: what the
 * engine itself refuses must be refused alike.
 */

import t from 'tap'
import { answerTable, compareRow } from '../system/answer-table.ts'
import { RouterClient, send, startTestRouter } from '../system/fleet.ts'

const isLive = process.env['HOMING_REAL_ENGINES'] === '1'
const skip = isLive ? false : 'needs live engines: HOMING_REAL_ENGINES=1'
const [url = ''] = (process.env['HOMING_REAL_ENGINE_URLS'] ?? 'http://127.0.0.1:8100').split(',')

t.test('routed answers equal direct ones of a live engine', { skip, timeout: 600_000 }, async t => {
  const router = await startTestRouter([url], [])
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  await client.trusted()
  const engineUrl = url.split('?', 1)[0]!
  const { json: models } = await send(engineUrl, '/v1/models')
  const { json: version } = await send(engineUrl, '/version')
  const rows = answerTable(models.data[0].id)
  const statuses: Record<number, number> = {}
  for (const row of rows) {
    const { status } = await compareRow(engineUrl, router.url, row, { folds: true })
    statuses[status] = (statuses[status] ?? 0) + 1
    t.pass(`${status} ${row.title}`)
  }
  t.comment(`vLLM ${version.version}: ${rows.length} rows, by status ${JSON.stringify(statuses)}`)
  t.ok((statuses[200] ?? 0) >= rows.length / 2, 'most rows have an answer')
})
