/** The records of a torture run, when a thread dies in the middle of a line. */

import t from 'tap'
import { Board, COUNT } from './board.ts'

t.test('a gap that a dying thread did not finish to note hides no later one', async t => {
  const board = new Board()
  board.begun(1)
  board.add(COUNT.gaps) // its record is never written
  board.received(0, 1, 0, 5)
  t.strictSame([...board.takeGaps(false)], [], 'it may still be written')
  t.match([...board.takeGaps(true)], [{ sender: 0, receiver: 0, size: 5, first: 0 }])
  t.strictSame([...board.takeGaps(true)], [])
})
