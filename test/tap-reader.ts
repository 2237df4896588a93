/**
 * Reads the TAP of one test file, with `tap-parser`, and counts test cases: the innermost titled tests, not
 * assertions.
 *
 * Invariants
 *   I1  A test without tests in it is one case. One with tests in it is a case only if it failed by itself.
 *   I2  A file whose assertions stand outside of every test is one case, named after the file.
 *   I3  Cases that are skipped or marked as still to be done are counted by name, never as passed.
 *
 * Lines that are not TAP are ignored: a test may print.
 */

import { Parser, parseDirective, type Result } from 'tap-parser'
import { stringify } from 'tap-yaml'

export interface FailedCase {
  /** Titles from the outside in. */
  readonly path: readonly string[]
  /** Failed assertions with what explains them, as lines. */
  readonly report: readonly string[]
}

export interface SkippedCase {
  readonly path: readonly string[]
  readonly reason: string
}

export interface TapSummary {
  readonly passed: number
  readonly failed: readonly FailedCase[]
  readonly skipped: readonly SkippedCase[]
  /** False: the output stopped before the plan that closes it. */
  readonly isComplete: boolean
}

/** A test while its lines are read; the file is one, too. */
interface OpenTest {
  readonly path: readonly string[]
  caseCount: number
  assertionCount: number
  /** Why an assertion in it was skipped; the first counts. */
  skipReason: string | undefined
  report: string[]
  hasFailedInside: boolean
}

/** Reads the whole output of one file. */
export function readTap(output: string): TapSummary {
  const failed: FailedCase[] = []
  const skipped: SkippedCase[] = []
  let passed = 0

  const close = (test: OpenTest, result: Result): void => {
    const reason = reasonOf(result)
    if (!result.ok && (test.report.length > 0 || !test.hasFailedInside)) {
      const report = test.report.length === 0 ? explanation(result) : test.report
      failed.push({ path: test.path, report })
    } else if (reason !== undefined) {
      skipped.push({ path: test.path, reason })
    } else if (test.caseCount === 0 && result.ok) {
      if (test.assertionCount === 0 && test.skipReason !== undefined)
        skipped.push({ path: test.path, reason: test.skipReason })
      else passed++
    }
  }
  const read = (parser: Parser, test: OpenTest): void => {
    let inner: OpenTest | undefined
    parser.on('child', (child: Parser) => {
      inner = openTest([...test.path, child.name])
      read(child, inner)
    })
    parser.on('assert', (result: Result) => {
      const reason = reasonOf(result)
      if (inner !== undefined) {
        close(inner, result)
        inner = undefined
        test.caseCount++
        test.hasFailedInside ||= !result.ok
      } else if (reason !== undefined) {
        // Within a test, `t.skip('why')` says why the test around it has nothing to check.
        if (parser === file) skipped.push({ path: [result.name], reason })
        test.skipReason ??= reason === '' ? result.name : reason
      } else {
        test.assertionCount++
        if (!result.ok) test.report.push(`not ok - ${result.name}`, ...explanation(result))
      }
    })
  }

  const file = new Parser()
  const whole = openTest([])
  read(file, whole)
  file.end(output)

  const plan = file.results!.plan
  const directive = parseDirective(plan.comment)
  if (directive && directive[0] === 'skip')
    skipped.push({ path: [], reason: directive[1] === true ? '' : directive[1] })
  // What `t.plan(0, 'why')` prints.
  else if (plan.end === 0 && plan.comment !== '') skipped.push({ path: [], reason: plan.comment })
  if (whole.report.length > 0) failed.push({ path: [], report: whole.report })
  else if (whole.caseCount === 0 && whole.assertionCount > 0) passed++
  return { passed, failed, skipped, isComplete: plan.end !== null }
}

function openTest(path: readonly string[]): OpenTest {
  return { path, caseCount: 0, assertionCount: 0, skipReason: undefined, report: [], hasFailedInside: false }
}

/** Undefined: it counts. */
function reasonOf({ skip, todo }: Result): string | undefined {
  if (skip !== false) return skip === true ? '' : skip
  if (todo !== false) return todo === true ? 'still to be done' : todo
  return undefined
}

/** What stands below the line of a result. */
function explanation({ diag }: Result): readonly string[] {
  if (diag === null) return []
  return stringify(diag)
    .trimEnd()
    .split('\n')
    .map(line => `  ${line}`)
}
