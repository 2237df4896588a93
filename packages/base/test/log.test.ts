import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import process from 'node:process'
import t from 'tap'
import { createLog, recordingLog, silentLog } from '../src/index.ts'

const INDEX = join(import.meta.dirname, '../src/index.ts')

/** Runs statements in a process of their own and answers its lines on standard error. */
function linesOf(statements: string): Record<string, unknown>[] {
  const program = `import { createLog } from ${JSON.stringify(INDEX)}\n${statements}`
  const { stderr, stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
    timeout: 120_000,
  })
  t.equal(stdout, '', 'standard output stays for the program')
  return stderr
    .split('\n')
    .filter(line => line.startsWith('{'))
    .map(line => JSON.parse(line) as Record<string, unknown>)
}

t.test('a line has level, time, fields and text', async t => {
  const [line, ...rest] = linesOf(
    "createLog('info', { actor: 'router' }).info({ overlapBlocks: 3 }, 'worker selected')",
  )
  t.strictSame(rest, [])
  t.match(line, {
    level: 'info',
    actor: 'router',
    overlapBlocks: 3,
    msg: 'worker selected',
    time: /^\d{4}-.*Z$/,
  })
})

t.test('levels below the chosen one are not written', async t => {
  const lines = linesOf(
    "const log = createLog('warn'); log.info({}, 'no'); log.warn({}, 'yes'); log.error({}, 'too')",
  )
  t.strictSame(
    lines.map(line => line['msg']),
    ['yes', 'too'],
  )
  for (const level of ['trace', 'debug', 'info', 'warn', 'error'] as const) {
    t.equal(createLog('warn').isLevelEnabled(level), ['warn', 'error'].includes(level), level)
    t.notOk(silentLog.isLevelEnabled(level))
  }
})

t.test("a child's lines carry its fields too", async t => {
  const [line] = linesOf("createLog('info', { a: 1 }).child({ b: 2 }).info({ c: 3 }, 'x')")
  t.match(line, { a: 1, b: 2, c: 3 })
})

t.test(
  'asked for, a line is text, also of a child, of a crash, and of a process that can open no file',
  async t => {
    const program = `
    import { createLog } from ${JSON.stringify(INDEX)}
    import { Module } from 'node:module'
    const load = Module._load
    Module._load = () => { throw new Error('EMFILE: too many open files') }
    const log = createLog('info', { thread: 'events-0' }, 'text').child({ actor: 'indexer-0' })
    log.warn({ c: 3 }, 'bare')
    Module._load = load
    log.warn({ c: 5 }, 'whole')
    process.abort()`
    const { stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
      encoding: 'utf8',
      timeout: 120_000,
    })
    const [bare, whole] = stderr.split('\n')
    // No colours: it is no terminal.
    t.equal(bare, 'warn  indexer-0: bare c=3 thread=events-0')
    t.match(whole, /^\d\d:\d\d:\d\d warn {2}indexer-0: whole c=5 thread=events-0$/)
  },
)

t.test('the last line before a crash is there', async t => {
  const [line] = linesOf("createLog().error({}, 'last words'); process.abort()")
  t.match(line, { level: 'error', msg: 'last words' })
})

t.test('a process that can open no file logs all the same, and as ever once it can', async t => {
  const lines = linesOf(`
    import { createRequire, Module } from 'node:module'
    const load = Module._load
    Module._load = () => { throw new Error('EMFILE: too many open files') }
    const log = createLog('info', { a: 1 }).child({ b: 2 })
    log.info({ c: 3 }, 'bare')
    log.debug({}, 'no')
    Module._load = load
    log.child({ d: 4 }).warn({ c: 5 }, 'whole')
  `)
  t.strictSame(lines[0], { level: 'info', a: 1, b: 2, c: 3, msg: 'bare' })
  t.match(lines[1], { level: 'warn', time: String, a: 1, b: 2, c: 5, d: 4, msg: 'whole' })
  t.equal(lines.length, 2)
})

t.test('a log can be spread, and one of its lines be taken over', async t => {
  const lines: string[] = []
  const log: typeof silentLog = { ...silentLog, warn: (_fields, text) => void lines.push(text) }
  log.info({}, 'no')
  log.warn({}, 'yes')
  t.strictSame(lines, ['yes'])
})

t.test('a recording log keeps every line, with the fields of its parents', async t => {
  const log = recordingLog()
  log.child({ actor: 'a' }).child({ thread: 'main' }).warn({ key: 'k' }, 'text')
  log.trace({}, 'other')
  t.strictSame(log.lines, [
    { level: 'warn', fields: { actor: 'a', thread: 'main', key: 'k' }, text: 'text' },
    { level: 'trace', fields: {}, text: 'other' },
  ])
})
