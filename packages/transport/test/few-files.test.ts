/**
 * ZeroMQ sockets in a process whose file descriptors run out: each is refused or made later, and nothing
 * breaks.
 */

import { spawnSync } from 'node:child_process'
import t from 'tap'

const PROGRAM = new URL('./few-files-process.ts', import.meta.url).pathname
const SKIP = spawnSync('prlimit', ['--version']).status === 0 ? false : 'there is no prlimit(1)'

t.test(
  'with any number of file descriptors left a process lives, and connects when it has enough',
  {
    skip: SKIP,
  },
  async t => {
    const { stdout, stderr, status } = spawnSync('prlimit', ['--nofile=90', process.execPath, PROGRAM], {
      timeout: 120_000,
      encoding: 'utf8',
    })
    t.same({ stdout, stderr, status }, { stdout: '["HOMING_TRANSPORT_LISTEN"]', stderr: '', status: 0 })
  },
)
