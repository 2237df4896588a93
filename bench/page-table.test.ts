import t from 'tap'
import { givenCount, givenFigure } from './given-figure.ts'
import { marksOf, withTable } from './page-table.ts'

t.test('a table stands between its marks, and a page without them is refused', async t => {
  const marks = marksOf('x')
  const page = `before\n${marks.begin}\nold\n${marks.end}\nafter`
  t.equal(withTable(page, 'new', marks), `before\n${marks.begin}\nnew\n${marks.end}\nafter`)
  t.throws(() => withTable(page, 'new', marksOf('y')), /the page has no <!-- y: begin -->/)
  t.throws(() => withTable(`${marks.end}${marks.begin}`, 'new', marks), /the page has no/)
})

t.test('a figure that is none is refused by the name of its option', async t => {
  t.equal(givenFigure('minutes', '0.5'), 0.5)
  for (const text of ['', ' ', 'x', '-1', 'Infinity', 'NaN'])
    t.throws(() => givenFigure('minutes', text), /cannot use --minutes .*: use a number from 0 on/)
  t.throws(() => givenFigure('seeds', '0', 1), /use a number from 1 on/)
  t.throws(() => givenCount('seeds', '1.5'), /use a whole number from 1 on/)
})
