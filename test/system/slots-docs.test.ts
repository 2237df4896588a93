/** docs/slots.md, typed as printed. */

import t from 'tap'
import { hasCurl, runTypedPage } from './typed-page.ts'

const skip = hasCurl ? false : 'curl is not installed'

t.test('every command of docs/slots.md does what the page says', { skip }, async t => {
  await runTypedPage(t, {
    page: 'slots.md',
    ports: /\b(8091|8092|8093|5801|5811)\b/g,
    stepsMin: 10,
    isQuestion: command => /\/(loads|potential_loads|peers)\b/.test(command),
  })
})
