/** docs/first-hour.md, typed as printed. */

import t from 'tap'
import { hasCurl, runTypedPage } from './typed-page.ts'

const skip = hasCurl ? false : 'curl is not installed'

t.test('every command of docs/first-hour.md does what the page says', { skip }, async t => {
  await runTypedPage(t, {
    page: 'first-hour.md',
    ports: /\b(800[0-3]|555[7-9]|655[7-9])\b/g,
    stepsMin: 14,
    isQuestion: command => !/ -d | -X /.test(command),
  })
})
