/** The table of docs/routing-quality.md can be made, and shows its point. */

import t from 'tap'
import { CACHES, KNOWLEDGE, runCell, TROUBLES } from './routing-quality.ts'

t.test('knowledge of caches brings hits, and events most where others use the engines', async t => {
  const past = TROUBLES['30 % past the router']!
  const hits = async (knowledge: string) =>
    (await runCell(CACHES['very tight'], KNOWLEDGE[knowledge]!, past)).hitRate
  const [exact, approximate, text, none] = [
    await hits('exact'),
    await hits('approximate'),
    await hits('text'),
    await hits('none'),
  ]
  t.ok(exact > approximate, `${exact} with events, ${approximate} without`)
  t.ok(approximate > none, `${approximate} by what was sent, ${none} without`)
  t.ok(text > none, `${text} by text, ${none} without`)
})
