/**
 * The real binary of the best router that places by text alone (SGLang's `smg`, policy `cache_aware`), as a
 * process in front of the engines of a bench: `pip install smg`, then its path in HOMING_BENCH_SMG.
 */

import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import process from 'node:process'
import { freePorts } from '@homing/transport/testing'
import { open, until } from '../../test/system/fleet.ts'

const BINARY = process.env['HOMING_BENCH_SMG']

/** Why the rival cannot run here; undefined: it can. */
export function rivalMissing(): string | undefined {
  if (BINARY === undefined) return 'HOMING_BENCH_SMG does not name the binary smg (pip install smg)'
  return existsSync(BINARY) ? undefined : `HOMING_BENCH_SMG names ${BINARY}, which is not there`
}

export interface RivalProcess {
  readonly url: string
  kill(signal: NodeJS.Signals): void
  readonly ended: Promise<unknown>
}

/** Resolves once it has all engines. Throws when it ends before, with the end of what it printed. */
export async function startRival(engineUrls: readonly string[]): Promise<RivalProcess> {
  const missing = rivalMissing()
  if (missing !== undefined) throw new Error(`cannot start the rival: ${missing}`)
  const [port, metricsPort] = await freePorts(2)
  const child = spawn(
    BINARY!,
    [
      ...['launch', '--host', '127.0.0.1', '--port', String(port), '--policy', 'cache_aware'],
      ...['--prometheus-host', '127.0.0.1', '--prometheus-port', String(metricsPort), '--log-level', 'error'],
      ...['--worker-urls', ...engineUrls],
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  )
  let printed = ''
  const keep = (bytes: Buffer): void => {
    printed = (printed + bytes.toString()).slice(-2000)
  }
  child.stdout.on('data', keep)
  child.stderr.on('data', keep)
  let isRunning = true
  const ended = new Promise<void>(resolve => {
    child.once('error', thrown => keep(Buffer.from(thrown.message)))
    child.once('close', () => {
      isRunning = false
      resolve()
    })
  })
  const url = `http://127.0.0.1:${port}`
  await until('the rival has all engines', async () => {
    if (!isRunning) throw new Error(`the rival ended: ${printed}`)
    return (await readyWorkers(url)) === engineUrls.length ? true : undefined
  })
  return { url, kill: signal => void child.kill(signal), ended }
}

async function readyWorkers(url: string): Promise<number> {
  try {
    const { body } = await open(url, '/workers', { method: 'GET' })
    const { workers } = JSON.parse(await body.text()) as { workers: readonly { is_healthy: boolean }[] }
    return workers.filter(worker => worker.is_healthy).length
  } catch {
    // It does not listen yet.
    return 0
  }
}
