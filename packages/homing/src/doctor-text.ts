/**
 * A diagnosis for people: what was asked, then a line for each finding with a sign and a word, then what
 * follows from them.
 *
 *   ✓ ok   ! note   ! warning   ✗ fault
 */

import type { Diagnosis, DiagnosisStep, Door, Finding, FindingLevel, Verdict } from '@homing/doctor'

const SIGNS: Readonly<Record<FindingLevel, string>> = { ok: '✓', note: '!', warning: '!', fault: '✗' }
const VERDICTS: Readonly<Record<Verdict, string>> = {
  well: 'well',
  inexact: 'works, but not exactly',
  unusable: 'cannot be used',
}
const ASKED_COLUMNS = 24
const DOORS_SHOWN_MAX = 16

/** Lines, the first one flush left. */
export function diagnosisText(diagnosis: Diagnosis): string {
  const { trust, engineFlags, steps, findings, doors } = diagnosis
  return [
    summaryLine(diagnosis),
    '  asked',
    ...steps.map(step => `    ${stepLine(step)}`),
    '  found',
    ...findings.map(finding => `    ${findingLine(finding)}`),
    `  trust within reach: ${trust.reachable}${trust.reachable === 'exact' ? '' : `: ${trust.reason}`}`,
    ...(engineFlags === undefined ? [] : [`  start the engine with: ${engineFlags}`]),
    `  the router must reach: ${doorsText(doors)}`,
  ].join('\n')
}

/** 'http://h:8001 (vllm 0.32.0): works, but not exactly: 1 warning, 2 notes'. */
export function summaryLine({ origin, engine, engineVersion, verdict, findings }: Diagnosis): string {
  const name = engine === 'unknown' ? '' : ` (${`${engine} ${engineVersion}`.trim()})`
  const counts = (['fault', 'warning', 'note'] as const)
    .map(level => [findings.filter(finding => finding.level === level).length, level] as const)
    .filter(([count]) => count > 0)
    .map(([count, level]) => `${count} ${count === 1 ? level : `${level}s`}`)
  return `${origin}${name}: ${[VERDICTS[verdict], counts.join(', ')].filter(Boolean).join(': ')}`
}

function stepLine({ asked, answered, durationMs, told }: DiagnosisStep): string {
  const time = `${Math.round(durationMs)} ms`
  return `${asked.padEnd(ASKED_COLUMNS)} ${answered}, ${time}${told === '' ? '' : `: ${told}`}`
}

function findingLine({ level, about, text, remedy }: Finding): string {
  return `${SIGNS[level]} ${level.padEnd('warning'.length)} ${about}: ${text}${remedy === undefined ? '' : `; ${remedy}`}`
}

function doorsText(doors: readonly Door[]): string {
  const shown = doors.slice(0, DOORS_SHOWN_MAX).map(({ at, use, dpRank }) => {
    const isOfOneRank = dpRank !== undefined && doors.some(door => (door.dpRank ?? 0) > 0)
    return `${at} (${use}${isOfOneRank ? ` of rank ${dpRank}` : ''})`
  })
  const left = doors.length - shown.length
  return `${shown.join(', ')}${left > 0 ? ` and ${left} more (--json has all)` : ''}`
}
