import t from 'tap'
import { readTap } from './tap-reader.ts'

t.test('a test is one case, however many assertions it has', async t => {
  const summary = readTap(
    [
      'TAP version 14',
      '# Subtest: first',
      '    ok 1 - should be equal',
      '    ok 2 - should be equal',
      '    1..2',
      'ok 1 - first # time=1ms',
      '',
      '# Subtest: second',
      '    1..0',
      'ok 2 - second # time=1ms',
      '1..2',
    ].join('\n'),
  )
  t.strictSame(summary, { passed: 2, failed: [], skipped: [], isComplete: true })
})

t.test('of nested tests the innermost are the cases, and a failure is counted once', async t => {
  const summary = readTap(
    [
      '# Subtest: outer',
      '    # Subtest: a',
      '        ok 1 - fine',
      '        not ok 2 - should be equal',
      '          ---',
      '          diff: |',
      '            ok 3 - no test point',
      '          ...',
      '        1..2',
      '    not ok 1 - a # time=14ms',
      '      ---',
      '      at: somewhere',
      '      ...',
      '    # Subtest: b',
      '        ok 1 - fine',
      '        1..1',
      '    ok 2 - b',
      '    1..2',
      'not ok 1 - outer',
      '  ---',
      '  at: elsewhere',
      '  ...',
      '1..1',
    ].join('\n'),
  )
  t.equal(summary.passed, 1)
  t.strictSame(summary.failed, [
    {
      path: ['outer', 'a'],
      report: ['not ok - should be equal', '  diff: |', '    ok 3 - no test point'],
    },
  ])
})

t.test('a test that fails around its tests is a case of its own', async t => {
  const summary = readTap(
    [
      '# Subtest: outer',
      '    # Subtest: a',
      '        ok 1 - fine',
      '        1..1',
      '    ok 1 - a',
      '    not ok 2 - boom',
      '    1..2',
      'not ok 1 - outer',
      '1..1',
    ].join('\n'),
  )
  t.equal(summary.passed, 1)
  t.strictSame(
    summary.failed.map(failed => failed.path),
    [['outer']],
  )
})

t.test('what is skipped has a name and a reason', async t => {
  const summary = readTap(
    [
      'ok 1 - compares with the engine # SKIP no ../shared',
      '# Subtest: measures the peer',
      '    ok 1 - no cargo # SKIP',
      '    1..1',
      'ok 2 - measures the peer # time=2ms',
      'ok 3 - later # TODO',
      '1..3',
    ].join('\n'),
  )
  t.equal(summary.passed, 0)
  t.strictSame(summary.skipped, [
    { path: ['compares with the engine'], reason: 'no ../shared' },
    { path: ['measures the peer'], reason: 'no cargo' },
    { path: ['later'], reason: 'still to be done' },
  ])
})

t.test('a file that is skipped whole is one skip', async t => {
  t.strictSame(
    readTap('TAP version 14\n1..0 # no network\n').skipped,
    [{ path: [], reason: 'no network' }],
    'as `t.plan(0, why)` prints it',
  )
  t.strictSame(readTap('TAP version 14\n1..0 # SKIP no network\n').skipped, [
    { path: [], reason: 'no network' },
  ])
})

t.test('assertions outside of every test are one case of the file', async t => {
  t.strictSame(readTap('ok 1 - a\nok 2 - b\n1..2\n'), {
    passed: 1,
    failed: [],
    skipped: [],
    isComplete: true,
  })
  const summary = readTap('ok 1 - a\nnot ok 2 - b\n1..2\n')
  t.equal(summary.passed, 0)
  t.strictSame(summary.failed, [{ path: [], report: ['not ok - b'] }])
})

t.test('output that stops early is not complete, and noise is ignored', async t => {
  const summary = readTap('hello\n# Subtest: a\n    ok 1 - x\n    some noise\n    1..1\nok 1 - a\n')
  t.equal(summary.passed, 1)
  t.equal(summary.isComplete, false)
})
