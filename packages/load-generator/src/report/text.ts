/** The result as tables for a terminal. */

import { alignColumns } from '@homing/simulate/report'
import type { ComparedFigure } from '../comparison.ts'
import { figureText } from '../figures.ts'
import type { LoadResult, SideResult } from '../load-plan.ts'
import type { HomingFigures, LoadFigures } from '../tally.ts'
import type { LoadAbout } from './about.ts'

export function renderLoadText(
  about: LoadAbout,
  result: LoadResult,
  compared: readonly ComparedFigure[],
  faults: readonly string[],
): string {
  const lines = [`model ${about.model}; ${about.pace}; ${about.requests}`, '']
  for (const side of result.sides) lines.push(...sideLines(side, result.sides.length > 1), '')
  if (compared.length > 0) lines.push(...comparisonLines(result, compared), '')
  if (!result.isComplete) lines.push('Stopped before the end: what is above is what was measured.')
  for (const fault of faults) lines.push(`INVALID: ${fault}.`)
  return `${lines.join('\n').trimEnd()}\n`
}

function sideLines({ name, url, total, blocks }: SideResult, isNamed: boolean): string[] {
  const title = isNamed ? `${name}  ${url}  (${blocks.length} blocks)` : url
  const rows = [
    ['ms', 'mean', 'p50', 'p90', 'p99'],
    ...(total.ttftMs.mean > 0
      ? [row('TTFT', total.ttftMs), row('ITL', total.itlMs), row('gap', total.gapMs)]
      : []),
    row('E2E', total.e2eMs),
    ...(total.issueLagMs.mean > 0 ? [row('issue lag', total.issueLagMs)] : []),
    row('read lag', total.readLagMs),
  ]
  return [title, ...alignColumns(rows), ...alignFacts(factsOf(total))]
}

function row(name: string, { mean, p50, p90, p99 }: LoadFigures['ttftMs']): string[] {
  return [name, ...[mean, p50, p90, p99].map(figureText)]
}

/** Counts and shares of a side, each with its name; '' goes on with the one before. */
export function factsOf(total: LoadFigures): [string, string][] {
  const { requests, answered, errors, errorRate, requestsPerS, outputTokensPerS, waited } = total
  const failed = requests - answered
  const facts: [string, string][] = [
    ['requests', `${requests} counted, ${answered} answered, ${figureText(requestsPerS)} per s`],
    ['errors', failed === 0 ? '0' : `${failed} (${figureText(100 * errorRate)} %)`],
    ...errors.map(({ kind, status, count, detail }): [string, string] => [
      '',
      `${count} × ${kind}${status === undefined ? '' : ` ${status}`}: ${detail}`,
    ]),
    ['output', `${total.outputTokens} tokens, ${figureText(outputTokensPerS)} per s${withoutUsage(total)}`],
    ['prompts', `${total.promptTokens} tokens, ${cachedText(total)}`],
  ]
  if (waited > 0)
    facts.push([
      'waited',
      `${waited} requests, because as many as --max-open-requests or --concurrency were open`,
    ])
  if (total.homing !== undefined) facts.push(...homingFacts(total.homing))
  return facts
}

function withoutUsage({ withoutUsage: count }: LoadFigures): string {
  return count === 0 ? '' : ` (${count} answers without usage: parts of their streams)`
}

function cachedText({ cachedTokens, cachedShare }: LoadFigures): string {
  if (cachedTokens === undefined || cachedShare === undefined) return 'cached ones are not reported'
  return `${cachedTokens} cached (${figureText(100 * cachedShare)} %)`
}

function homingFacts(homing: HomingFigures): [string, string][] {
  const { share, overlapShare, overlapBlocksMean, predictedHitRate, trustShares, workers, workerShareMax } =
    homing
  const trusts = Object.entries(trustShares).map(([trust, of]) => `${trust} ${figureText(100 * of)} %`)
  const predicted =
    predictedHitRate === undefined
      ? `${figureText(overlapBlocksMean)} blocks of overlap in the mean`
      : `${figureText(100 * predictedHitRate)} % of the prompt tokens predicted to be cached`
  return [
    [
      'homing',
      `${figureText(100 * share)} % of the answers through it; ${predicted}; overlap in ${figureText(100 * overlapShare)} %`,
    ],
    [
      '',
      `trust ${trusts.join(', ')}; ${workers === 1 ? 'one worker' : `${workers} workers`}, the busiest got ${figureText(100 * workerShareMax)} %`,
    ],
  ]
}

function comparisonLines({ sides }: LoadResult, compared: readonly ComparedFigure[]): string[] {
  const [ours, theirs] = sides as readonly [SideResult, SideResult]
  const rows = compared.map(({ figure, ours, theirs, difference, halfWidth, verdict }) => [
    figure.unit === 'ms' ? `${figure.name} ms` : `${figure.name} ${figure.unit}`,
    figureText(ours),
    figureText(theirs),
    signed(difference),
    halfWidth === undefined ? '–' : `${signed(difference - halfWidth)} … ${signed(difference + halfWidth)}`,
    theirs === 0 ? '–' : `${signed((100 * difference) / theirs)} %`,
    verdict === 'better' || verdict === 'worse' ? `A ${verdict}` : verdict,
  ])
  const pairs = Math.max(...compared.map(({ pairs }) => pairs))
  return [
    `A ${ours.url} against B ${theirs.url}: ${pairs} pairs of blocks`,
    ...alignColumns([['', 'A', 'B', 'A − B', '95 % interval', 'of B', 'verdict'], ...rows]),
    'Intervals hold for all rows together: two equal fleets show a difference in one comparison of twenty at most.',
    summaryOf(compared),
  ]
}

/** The whole comparison in a sentence. */
export function summaryOf(compared: readonly ComparedFigure[]): string {
  if (compared.every(({ verdict }) => verdict === 'unknown'))
    return 'Too few pairs of blocks to say anything.'
  const named = (wanted: ComparedFigure['verdict']): string =>
    compared
      .filter(({ verdict }) => verdict === wanted)
      .map(({ figure }) => figure.name)
      .join(', ')
  const parts = [
    ...(named('better') === '' ? [] : [`A is better in ${named('better')}`]),
    ...(named('worse') === '' ? [] : [`A is worse in ${named('worse')}`]),
  ]
  return parts.length === 0 ? 'No difference that is more than chance.' : `${parts.join('; ')}.`
}

/** With its sign. */
export function signed(value: number): string {
  const text = figureText(value)
  return value > 0 ? `+${text}` : text.replace('-', '−')
}

function alignFacts(facts: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...facts.map(([name]) => name.length))
  return facts.map(([name, text]) => `  ${name.padEnd(width)}  ${text}`)
}
