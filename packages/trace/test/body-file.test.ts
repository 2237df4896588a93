import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { isBodyFile, type LoggedBody, openBodies } from '../src/index.ts'

const CHAT = { messages: [{ role: 'user', content: 'hello' }], max_tokens: 5 }

function fileOf(t: Test, lines: readonly unknown[]): string {
  const path = join(t.testdir({}), 'bodies.jsonl')
  const texts = lines.map(line => (typeof line === 'string' ? line : JSON.stringify(line)))
  writeFileSync(path, `${texts.join('\n')}\n`)
  return path
}

async function read(path: string): Promise<readonly LoggedBody[]> {
  const bodies: LoggedBody[] = []
  for await (const body of openBodies(path)) bodies.push(body)
  return bodies
}

t.test('bodies are lines themselves or members, chats or completions', async t => {
  const path = fileOf(t, [
    { timestamp: 5, ...CHAT },
    '',
    { timestamp: 5, prompt: 'hello' },
    { timestamp: 7, body: { prompt: [1, 2] }, status: 200 },
  ])
  t.equal(await isBodyFile(path), true)
  t.strictSame(await read(path), [
    { timestampMs: 5, endpoint: 'chat', body: CHAT },
    { timestampMs: 5, endpoint: 'completions', body: { prompt: 'hello' } },
    { timestampMs: 7, endpoint: 'completions', body: { prompt: [1, 2] } },
  ])
})

t.test('a file without times has none, and a trace of lengths is no file of bodies', async t => {
  t.strictSame(await read(fileOf(t, [CHAT])), [{ timestampMs: undefined, endpoint: 'chat', body: CHAT }])
  for (const line of [{ timestamp: 1, input_length: 3, output_length: 1, hash_ids: [1] }, 'no JSON', '[]'])
    t.equal(await isBodyFile(fileOf(t, [line])), false)
  t.equal(await isBodyFile(fileOf(t, [])), false)
})

t.test('a line that is none says which and why', async t => {
  for (const [lines, why] of [
    [[CHAT, '{'], /line 2: it is not a JSON object/],
    [[CHAT, { prompt: {} }], /line 2: it has neither messages nor a prompt/],
    [[CHAT, { messages: [] }], /line 2: it has neither messages nor a prompt/],
    [[{ ...CHAT, timestamp: -1 }], /line 1: timestamp must be a number ≥ 0/],
    [[{ ...CHAT, timestamp: '1' }], /line 1: timestamp must be a number ≥ 0/],
    [
      [
        { ...CHAT, timestamp: 2 },
        { ...CHAT, timestamp: 1 },
      ],
      /line 2: timestamp 1 is before 2/,
    ],
    [[{ ...CHAT, timestamp: 2 }, CHAT], /line 2: some lines have a timestamp, and some have none/],
    [[CHAT, { ...CHAT, timestamp: 2 }], /line 2: some lines have a timestamp, and some have none/],
  ] as const) {
    await t.rejects(read(fileOf(t, lines)), { code: 'HOMING_TRACE_MALFORMED', message: why })
  }
})
