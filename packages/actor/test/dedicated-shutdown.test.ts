import type { Log } from '@homing/log'
import t from 'tap'
import { createActorSystem } from '../src/index.ts'
import { echo } from './fixtures/echo.ts'

t.test('a shutdown joins the end of dedicated threads and finds nobody slow', async t => {
  const warnings: string[] = []
  const log: Log = {
    trace() {},
    debug() {},
    info() {},
    warn: (_fields, text) => void warnings.push(text),
    error: (_fields, text) => void warnings.push(text),
    child: () => log,
    isLevelEnabled: () => true,
  }
  const system = await createActorSystem({ log, threadExecArgv: [] })
  for (let i = 0; i < 3; i++) system.spawn(echo, { name: `echo-${i}`, args: {}, thread: 'dedicated' })
  await system.describe()
  const report = await system.shutdown({ deadline: '5s' })
  t.strictSame(report.slow, [])
  t.strictSame(warnings, [])
})
