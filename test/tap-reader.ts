/**
 * Reads the TAP of one test file and counts test cases: the innermost titled tests, not assertions.
 *
 *   # Subtest: title            opens a test at this indentation
 *       ok 1 - assertion        belongs to it; four columns deeper
 *         ---  …  ...           what explains the line above
 *   ok 1 - title # time=3ms     closes it
 *
 * Invariants
 *   I1  A test without tests in it is one case. One with tests in it is a case only if it failed by itself.
 *   I2  A file whose assertions stand outside of every test is one case, named after the file.
 *   I3  Cases that are skipped or marked as still to be done are counted by name, never as passed.
 *
 * Lines that are not TAP are ignored: a test may print.
 *
 * Source   https://testanything.org/tap-version-14-specification.html, in node-tap's spelling
 */

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

interface OpenTest {
  readonly title: string
  readonly indent: number
  caseCount: number
  assertionCount: number
  skips: SkippedCase[]
  report: string[]
  hasFailedInside: boolean
}

/** Reads the whole output of one file. */
export function readTap(output: string): TapSummary {
  const failed: FailedCase[] = []
  const skipped: SkippedCase[] = []
  let passed = 0
  let isComplete = false

  const file = openTest('', -4)
  const open: OpenTest[] = [file]
  let explained: { readonly report: string[]; readonly indent: number } | undefined
  let isInBlock = false

  for (const line of output.split('\n')) {
    const indent = line.length - line.trimStart().length
    const text = line.trim()

    if (explained !== undefined) {
      if (isInBlock) {
        if (text === '...' && indent === explained.indent + 2) explained = undefined
        else explained.report.push(line.slice(explained.indent))
        continue
      }
      if (text === '---' && indent === explained.indent + 2) {
        isInBlock = true
        continue
      }
      explained = undefined
    }
    isInBlock = false

    const subtest = /^# Subtest: (.*)$/.exec(text)
    if (subtest !== null && indent % 4 === 0) {
      while (open.length > 1 && open.at(-1)!.indent >= indent) open.pop()
      open.push(openTest(subtest[1]!, indent))
      continue
    }
    const plan = /^1\.\.(\d+)(?:\s*#\s*(.*))?$/.exec(text)
    if (plan !== null && indent === 0) {
      isComplete = true
      const skip = /^SKIP\s*(.*)$/i.exec(plan[2] ?? '')
      if (skip !== null) skipped.push({ path: [], reason: skip[1]! })
      continue
    }
    const point = /^(not )?ok(?: \d+)?(?: - (.*))?$/.exec(text)
    if (point === null || indent % 4 !== 0) continue
    const isOk = point[1] === undefined
    const { title, skip, todo } = splitDirective(point[2] ?? '')

    const top = open.at(-1)!
    if (top.indent === indent) {
      open.pop()
      const parent = open.at(-1)!
      const path = [...open.slice(1).map(test => test.title), top.title]
      const failedItself = !isOk && (top.report.length > 0 || !top.hasFailedInside)
      if (failedItself) {
        failed.push({ path, report: top.report })
        explained = top.report.length === 0 ? { report: top.report, indent } : { report: [], indent }
      } else {
        explained = { report: [], indent }
        const isSkip = skip !== undefined || todo !== undefined
        if (isSkip) skipped.push({ path, reason: skip ?? todo! })
        else if (top.caseCount === 0 && isOk) {
          if (top.assertionCount === 0 && top.skips.length > 0)
            skipped.push({ path, reason: top.skips[0]!.reason })
          else passed++
        }
      }
      parent.caseCount++
      parent.hasFailedInside ||= !isOk
    } else if (indent === top.indent + 4) {
      if (skip !== undefined || todo !== undefined) {
        const reason = skip ?? todo ?? ''
        const path = [...open.slice(1).map(test => test.title), title]
        // Within a test: `t.skip('why')` says why the test around it has nothing to check.
        if (top === file) skipped.push({ path, reason })
        top.skips.push({ path, reason: reason === '' ? title : reason })
      } else {
        top.assertionCount++
        explained = { report: [], indent }
        if (!isOk) {
          top.report.push(`not ok - ${title}`)
          explained = { report: top.report, indent }
        }
      }
    }
  }

  if (file.report.length > 0) failed.push({ path: [], report: file.report })
  else if (file.caseCount === 0 && file.assertionCount > 0) passed++
  return { passed, failed, skipped, isComplete }
}

function openTest(title: string, indent: number): OpenTest {
  return { title, indent, caseCount: 0, assertionCount: 0, skips: [], report: [], hasFailedInside: false }
}

function splitDirective(text: string): { title: string; skip?: string; todo?: string } {
  const match = /^(.*?)\s*(?<!\\)# (time=\S+|SKIP|TODO)\b\s*(.*)$/i.exec(text)
  if (match === null) return { title: text }
  const title = match[1]!
  const word = match[2]!.toUpperCase()
  if (word === 'SKIP') return { title, skip: match[3]! }
  if (word === 'TODO') return { title, todo: match[3]! === '' ? 'still to be done' : match[3]! }
  return { title }
}
