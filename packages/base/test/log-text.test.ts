/** A line of the log for people. */

import t from 'tap'
import { logText } from '../src/log-text.ts'

/** Noon where this process runs. */
const TIME = new Date(2026, 10, 22, 12, 4, 5).toISOString()
const shown = (line: object): string =>
  logText({ level: 'info', time: TIME, system: 'homing', thread: 'main', msg: 'text', ...line }, false)

t.test('it is time of day, level, actor, text, and fields as key=value', async t => {
  t.equal(
    shown({ actor: 'directory', msg: 'worker found', worker: '127.0.0.1:8001', ranks: 1, isUp: true }),
    '12:04:05 info  directory: worker found worker=127.0.0.1:8001 ranks=1 isUp=true',
  )
})

t.test('without an actor its thread stands there, and main where there is no thread', async t => {
  t.equal(shown({}), '12:04:05 info  main: text')
  t.equal(shown({ thread: 'events-0' }), '12:04:05 info  events-0: text')
  t.equal(shown({ thread: undefined }), '12:04:05 info  main: text')
  t.equal(shown({ thread: 'events-0', actor: 'indexer-0' }), '12:04:05 info  indexer-0: text thread=events-0')
})

t.test('values with spaces, quotes or nothing in them are JSON, and so are lists and objects', async t => {
  t.equal(
    shown({ engine: 'vllm 0.32.0', quote: 'a"b', none: '', list: [1, 'b'], of: { a: null } }),
    '12:04:05 info  main: text engine="vllm 0.32.0" quote="a\\"b" none="" list=[1,"b"] of={"a":null}',
  )
})

t.test('an error is its message and its code', async t => {
  const error = { code: 'HOMING_QUEUE_FULL', message: 'no room', details: {} }
  t.equal(shown({ error }), '12:04:05 info  main: text error="no room [HOMING_QUEUE_FULL]"')
})

t.test('whatever is in it, it is one line and no command to the terminal', async t => {
  const evil = 'a\nb\x1b[2Jc\u2028'
  const line = shown({ msg: evil, field: evil, actor: evil })
  t.notMatch(line, /[\p{Cc}\u2028]/u)
  t.match(line, ': a\\u000ab\\u001b[2Jc\\u2028 field=')
})

t.test('with colours, warnings and errors are seen', async t => {
  const coloured = (level: string): string => logText({ level, time: TIME, msg: 'text' }, true)
  t.equal(coloured('warn'), '12:04:05 \x1b[33mwarn \x1b[0m main: text')
  t.equal(coloured('error'), '12:04:05 \x1b[31merror\x1b[0m main: text')
  t.equal(coloured('info'), '12:04:05 info  main: text')
})
