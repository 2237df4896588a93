/**
 * `homing simulate` on a decision log: its first line, what it takes from the log, and when it refuses to
 * conclude.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type CellSpec, type ServedRequest, simulateCell } from '@homing/simulate'
import { generatedRequests, headerLine, lossLine, parseGenerator, requestLine } from '@homing/trace'
import t, { type Test } from 'tap'
import { type Exit, run } from './command.ts'

const BLOCK = 512
const KV_BLOCKS = 150
const WORKERS = 2

const SPEC: CellSpec = {
  workers: WORKERS,
  profile: 'h100-8b',
  blockTokens: BLOCK,
  kvCapacityTokens: KV_BLOCKS * BLOCK,
  storeAt: 'chunk-start',
  routers: 1,
  view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
  selection: { mode: 'round-robin' },
  knowsOutput: false,
  speed: 1,
  copies: 1,
  stretch: 1,
  seed: 1,
  warmupShare: 0,
}

/** The log of a router before engines that are as simulated, but `slower` times as slow. */
async function logText(slower = 1, requests = 300): Promise<string> {
  const trace = [...generatedRequests(parseGenerator(`sessions?requests=${requests}&rate=4&loop=open`), 3)]
  const served: ServedRequest[] = []
  const slow = { share: 1, factor: slower }
  await simulateCell({ ...SPEC, slow }, trace, { onServed: one => void served.push(one) })
  const lines = served.map(({ trace, worker, arrivalMs, firstTokenMs, endMs, reusedTokens }) => {
    const count = Math.ceil(trace.inputTokens / BLOCK)
    const hashIds = Array.from(trace.hashIds).slice(0, count)
    return requestLine({
      timestampMs: arrivalMs,
      inputTokens: trace.inputTokens,
      outputTokens: trace.outputTokens,
      blockTokens: BLOCK,
      hashIds: hashIds.length < count ? [...hashIds, 10_000_000] : hashIds,
      sessionId: trace.sessionId,
      model: 'm',
      worker: `w${worker}/0`,
      policy: 'round-robin',
      predictedTokens: 0,
      cachedTokens: reusedTokens,
      routerMs: 0,
      firstTokenMs: firstTokenMs - arrivalMs,
      totalMs: endMs - arrivalMs,
      outcome: 'ok',
      error: undefined,
      attempts: 1,
      wasTaken: true,
      knowledge: 'tokens',
    })
  })
  return header() + lines.join('')
}

const header = (change: (number: number) => object = () => ({})): string =>
  headerLine({
    life: 'one',
    originMs: 0,
    timestampMs: 0,
    selection: {
      mode: 'round-robin',
      policy: 'linear',
      overlapWeight: 1,
      temperature: 0,
      followsEvents: true,
    },
    workers: Array.from({ length: WORKERS }, (_, number) => ({
      key: `w${number}/0`,
      models: ['m'],
      blockTokens: BLOCK,
      kvBlocks: KV_BLOCKS,
      stepTokensMax: 8192,
      isUp: true,
      ...change(number),
    })),
  })

function simulate(t: Test, argv: readonly string[]): Promise<Exit> {
  const quick = ['--no-cache', '--seeds', '1', '--policies', 'round-robin,product']
  return run(t, ['simulate', ...quick, ...argv])
}

t.test('the first line says how well what really happened is simulated, then the tables come', async t => {
  const folder = t.testdir({})
  const path = join(folder, 'decisions.jsonl')
  writeFileSync(path, await logText())
  const json = join(folder, 'out.json')
  const { code, stdout, stderr } = await simulate(t, ['--trace', path, '--json', json])
  t.equal(code, 0, stderr)
  const [first, second] = stdout.split('\n')
  t.match(
    first,
    /^the simulation fits: of 270 requests placed as logged; TTFT mean [\d.]+ ms, seen [\d.]+ \(ratio 1\.0\d/,
  )
  t.match(second, /^decisions: speed 1 \(300 requests, [\d.]+ requests\/s\)$/)
  const { cells, about } = JSON.parse(readFileSync(json, 'utf8'))
  t.match(cells[0].result.spec, {
    workers: WORKERS,
    blockTokens: BLOCK,
    traceBlockTokens: BLOCK,
    kvCapacityTokens: KV_BLOCKS * BLOCK,
    storeAt: 'chunk-start',
    view: { kind: 'late' },
  })
  t.match(about.workloads[0].source, /decisions\.jsonl, SHA-256 [0-9a-f]{64}; the simulation fits/)
})

t.test('six workers, a bigger cache, no events: what is given takes the place of what was', async t => {
  const folder = t.testdir({})
  const path = join(folder, 'decisions.jsonl')
  writeFileSync(path, await logText())
  const json = join(folder, 'out.json')
  const argv = [
    '--workers',
    '6',
    '--kv-tokens',
    '400000',
    '--view',
    'guessed',
    '--speeds',
    '2',
    '--json',
    json,
  ]
  const { code, stderr } = await simulate(t, ['--trace', path, ...argv])
  t.equal(code, 0, stderr)
  const { cells } = JSON.parse(readFileSync(json, 'utf8'))
  t.match(cells[0].result.spec, {
    workers: 6,
    kvCapacityTokens: 400_000,
    view: { kind: 'guessed' },
    speed: 2,
    blockTokens: BLOCK,
  })
})

t.test('nothing is concluded from a log that the simulation does not fit, unless anyway', async t => {
  const folder = t.testdir({})
  const path = join(folder, 'slow.jsonl')
  writeFileSync(path, await logText(2))
  const refused = await simulate(t, ['--trace', path])
  t.equal(refused.code, 1)
  t.match(refused.stdout, /^the simulation does not fit: [^\n]*\n$/)
  t.match(
    refused.stderr,
    /cannot conclude anything from this decision log: the mean time to the first token is 0\.\d+ times what was seen\. Give the step times of your engines \(--profile\), or see the tables all the same \(--anyway\)/,
  )
  const anyway = await simulate(t, ['--trace', path, '--anyway'])
  t.equal(anyway.code, 0, anyway.stderr)
  t.match(anyway.stdout, /^the simulation does not fit: .*\nslow: speed 1/)
})

t.test('a log that was cut counts up to the cut, and says so; files of one log are one trace', async t => {
  const folder = t.testdir({})
  const text = await logText()
  const [head, ...lines] = text.trimEnd().split('\n')
  const older = join(folder, 'decisions.jsonl.1')
  const newer = join(folder, 'decisions.jsonl')
  writeFileSync(older, `${[head, ...lines.slice(0, 150)].join('\n')}\n`)
  writeFileSync(newer, `${[head, ...lines.slice(150)].join('\n')}\n${lossLine(3)}`.slice(0, -8))
  const { code, stdout, stderr } = await simulate(t, ['--trace', newer, '--trace', older])
  t.equal(code, 0, stderr)
  t.match(
    stdout,
    /^the simulation fits.*\n.*decisions\.jsonl was cut in line 152: what is before it counts\n/,
  )
  t.match(stdout, /^decisions: speed 1 \(300 requests/m)
  t.equal(stdout.match(/: speed 1/g)?.length, 1)
})

t.test('what the simulation cannot take from a log is said', async t => {
  const folder = t.testdir({})
  const path = join(folder, 'mixed.jsonl')
  const text = await logText()
  const mixed = header(number => ({ kvBlocks: KV_BLOCKS + number, models: [`m${number}`] }))
  writeFileSync(path, mixed + text.slice(header().length) + header() + mixed)
  const { stdout } = await simulate(t, [
    '--trace',
    path,
    '--kv-tokens',
    String(KV_BLOCKS * BLOCK),
    '--anyway',
  ])
  t.match(stdout, /^the simulation .*\nthe fleet changed 2 times: /)
  t.match(stdout, /\nthe log does not name one size for the caches of all workers/)
  t.match(
    stdout,
    /\nworkers serve different models: in the tables every worker takes every request\nmixed: speed 1/,
  )
})

t.test('a broken line is told with its number', async t => {
  const folder = t.testdir({})
  const path = join(folder, 'broken.jsonl')
  writeFileSync(path, `${header()}{"timestamp":1}\n${header()}`)
  const { code, stderr } = await simulate(t, ['--trace', path])
  t.equal(code, 2)
  t.match(
    stderr,
    /cannot read trace .*broken\.jsonl: line 2: input_length is missing; it must be an integer ≥ 0/,
  )
})
