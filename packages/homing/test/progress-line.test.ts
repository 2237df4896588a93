import { SimulatedClock } from '@homing/base'
import t from 'tap'
import { ProgressLine, timeText } from '../src/progress-line.ts'

interface Said {
  readonly texts: string[]
  readonly clock: SimulatedClock
  readonly line: ProgressLine
  /** Time passes, and so much of the work is done then. */
  pass(ms: number, share: number): void
}

function lineOn(stream: { readonly isTTY?: boolean; readonly columns?: number }): Said {
  const texts: string[] = []
  const clock = new SimulatedClock()
  let share = 0
  const write = (text: string): number => texts.push(text)
  const line = new ProgressLine({ ...stream, write }, clock, () => ({
    share,
    leftMs: share === 0 ? undefined : (1 - share) * 100_000,
    words: '3 of 6 cells',
  }))
  return {
    texts,
    clock,
    line,
    pass(ms, now) {
      share = now
      clock.advance(ms)
    },
  }
}

t.test('on a terminal a bar with the time left is drawn over itself, and taken away at the end', async t => {
  const { texts, line, pass, clock } = lineOn({ isTTY: true, columns: 60 })
  pass(250, 0)
  pass(250, 0.5)
  t.strictSame(texts, [
    `\r${'░'.repeat(24)} 0 %: 3 of 6 cells\u001b[K`,
    `\r${'█'.repeat(12)}${'░'.repeat(12)} 50 %: 3 of 6 cells, 50 s left\u001b[K`,
  ])
  line.end()
  t.equal(texts.at(-1), '\r\u001b[K')
  clock.advance(5000)
  line.end()
  t.equal(texts.length, 3, 'nothing is written after the end')
})

t.test('a terminal that does not know its width gets a line for 80 columns', async t => {
  const { texts, pass } = lineOn({ isTTY: true, columns: 0 })
  pass(250, 0.5)
  t.match(texts[0], '50 %: 3 of 6 cells, 50 s left')
})

t.test('on a narrow terminal the line is cut, since a line that wraps cannot be drawn over', async t => {
  const { texts, pass } = lineOn({ isTTY: true, columns: 40 })
  pass(250, 0.5)
  t.equal(texts[0]!.replace('\r', '').replace('\u001b[K', '').length, 39)
})

t.test('elsewhere there is a plain line for each tenth, and one a minute', async t => {
  const { texts, line, pass } = lineOn({})
  pass(1000, 0.05)
  t.strictSame(texts, [])
  pass(1000, 0.12)
  pass(5000, 0.13)
  t.strictSame(texts, ['homing: 12 %: 3 of 6 cells, 1 min 28 s left\n'])
  pass(60_000, 0.14)
  t.equal(texts.length, 2)
  line.end()
  t.equal(texts.length, 2, 'nothing is to be taken away')
})

t.test('times are told as people say them', async t => {
  for (const [ms, text] of [
    [0, '0 s'],
    [900, '1 s'],
    [59_000, '59 s'],
    [200_000, '3 min 20 s'],
    [1_500_000, '25 min'],
    [3_900_000, '1 h 5 min'],
  ] as const) {
    t.equal(timeText(ms), text)
  }
})
