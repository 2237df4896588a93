/** docs/indexer-service.md, typed as printed. */

import t from 'tap'
import { hasCurl, runTypedPage } from './typed-page.ts'

const skip = hasCurl ? false : 'curl is not installed'

t.test('every command of docs/indexer-service.md does what the page says', { skip }, async t => {
  await runTypedPage(t, {
    page: 'indexer-service.md',
    ports: /\b(8001|5557|6557|5657|8090|8091)\b/g,
    stepsMin: 10,
    // A registration takes effect, and events arrive, a moment later; only what may be repeated is.
    isQuestion: command => /\/(query|query_by_hash|workers|dump)\b/.test(command),
  })
})
