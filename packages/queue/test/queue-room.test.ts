import t from 'tap'
import { QueueRoom } from '../src/index.ts'

t.test('a request that one bound keeps out displaces none for another bound', async t => {
  const room = new QueueRoom({ requestsMax: 4, tokensMax: 100 })
  const displaced: string[] = []
  for (let i = 0; i < 4; i++) {
    const request = { tenant: 'flood', promptTokens: 10, bytes: 1 }
    const place = room.take(request, 0, () => {
      displaced.push(`flood ${i}`)
      if (!('reason' in place)) room.leave(place)
    })
    t.notOk('reason' in place)
  }
  const chat = { tenant: 'chat', bytes: 1 }
  const refused = room.take({ ...chat, promptTokens: 101 }, 0, () => {})
  t.match(refused, { reason: 'queue_full', limitKind: 'tokens', limit: 100 })
  t.strictSame(displaced, [])
  t.equal(room.requests, 4)
  t.notOk('reason' in room.take({ ...chat, promptTokens: 60 }, 0, () => {}))
  t.strictSame(displaced, ['flood 3'], 'one makes room for both bounds')
  t.strictSame([room.requests, room.tokens], [4, 90])
})
