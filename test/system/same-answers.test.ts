/** Routed answers equal the engine's, member for member, wherever an engine puts fingerprint and usage. */

import { ANSWER_FORMS } from '@homing/engine'
import t from 'tap'
import { answerTable, compareRow } from './answer-table.ts'
import { TINY_TOKENIZER, withFleet } from './fleet.ts'

for (const answerForm of ANSWER_FORMS) {
  t.test(`routed answers equal direct ones of an engine of the form ${answerForm}`, async t => {
    await withFleet({ engines: [{ answerForm, tokenizer: TINY_TOKENIZER }] }, async fleet => {
      const rows = answerTable('homing-sim')
      const engine = fleet.engines[0]!.url
      for (const row of rows) {
        const { status } = await compareRow(engine, fleet.url, row)
        t.equal(status, 200, row.title)
      }
      t.comment(`${rows.length} rows, each sent through the router twice`)
      const { json } = await fleet.send('/decisions?limit=1000')
      const wereAudited = json.decisions.filter(
        (decision: { delivered: { cached_tokens: number | null } | null }) =>
          decision.delivered?.cached_tokens != null,
      )
      t.ok(wereAudited.length > rows.length, `${wereAudited.length} answers said what was cached`)
    })
  })
}
