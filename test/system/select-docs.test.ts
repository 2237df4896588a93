/** docs/select.md, typed as printed. */

import t from 'tap'
import { hasCurl, runTypedPage } from './typed-page.ts'

const skip = hasCurl ? false : 'curl is not installed'

t.test('every command of docs/select.md does what the page says', { skip }, async t => {
  await runTypedPage(t, {
    page: 'select.md',
    ports: /\b(8001|8092|5557|6557)\b/g,
    stepsMin: 10,
    isQuestion: command => /:\d+\/(workers$|select |loads)/.test(command),
  })
})
