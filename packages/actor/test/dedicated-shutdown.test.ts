import { recordingLog } from '@homing/base'
import t from 'tap'
import { createActorSystem } from '../src/index.ts'
import { echo } from './fixtures/echo.ts'

t.test('a shutdown joins the end of dedicated threads and finds nobody slow', async t => {
  const log = recordingLog()
  const system = await createActorSystem({ log, threadExecArgv: [] })
  for (let i = 0; i < 3; i++) system.spawn(echo, { name: `echo-${i}`, args: {}, thread: 'dedicated' })
  await system.describe()
  const report = await system.shutdown({ deadline: '5s' })
  t.strictSame(report.slow, [])
  t.strictSame(
    log.lines.filter(({ level }) => level === 'warn' || level === 'error'),
    [],
  )
})
