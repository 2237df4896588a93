import t from 'tap'
import { sendBooked } from '../src/index.ts'

function exchange() {
  const callbacks: (() => void)[] = []
  return {
    onClientGone: (callback: (reason: 'left') => void) => void callbacks.push(() => callback('left')),
    leave: () => {
      for (const call of callbacks) call()
    },
  }
}

t.test('what was booked is undone once, where the answer does not get to its client', async t => {
  let undone = 0
  const undo = (): void => void undone++
  const taken = exchange()
  t.equal(await sendBooked(taken, undo, () => 200), 200)
  t.equal(undone, 0)
  taken.leave()
  t.equal(undone, 1, 'the client left while it was on its way')
  const full = exchange()
  const noRoom = new Error('no room for the answer')
  await t.rejects(
    sendBooked(full, undo, () => Promise.reject(noRoom)),
    noRoom,
  )
  full.leave()
  t.equal(undone, 2)
  const plain = exchange()
  t.equal(await sendBooked(plain, undefined, async () => 404), 404)
  plain.leave()
  t.equal(undone, 2)
})
