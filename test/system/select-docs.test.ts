/** docs/select.md, typed as printed. */

import t from 'tap'
import { hasCurl, runTypedPage } from './typed-page.ts'

const skip = hasCurl ? false : 'curl is not installed'

t.test('every command of docs/select.md does what the page says', { skip }, async t => {
  await runTypedPage(t, {
    page: 'select.md',
    ports: /\b(8001|8092|8094|8095|5557|6557|5821|5831)\b/g,
    stepsMin: 15,
    isQuestion: command => /:\d+\/(workers$|select |loads|replica_sync\/peers)/.test(command),
  })
})
