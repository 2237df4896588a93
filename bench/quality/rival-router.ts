/**
 * The real binary of the best router that places by text alone (SGLang's `smg`, policy `cache_aware`), as a
 * process in front of the engines of a bench: `pip install smg`; on PATH or where HOMING_BENCH_SMG says.
 */

import { spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { freePorts } from '@homing/transport/testing'
import { open, until } from '../../test/system/fleet.ts'
import { findRival, howToInstall, RIVALS } from '../http/rivals.ts'

const SMG = RIVALS['smg']!

/** Why the rival cannot run here; undefined: it can. Throws where its variable names no program. */
export function rivalMissing(): string | undefined {
  return findRival(SMG) === undefined ? `smg is not installed (${howToInstall(SMG)})` : undefined
}

export interface RivalProcess {
  readonly url: string
  kill(signal: NodeJS.Signals): void
  readonly ended: Promise<unknown>
}

/** Resolves once it has all engines. Throws when it ends before, with the end of what it printed. */
export async function startRival(engineUrls: readonly string[]): Promise<RivalProcess> {
  const found = findRival(SMG)
  if (found === undefined) throw new Error(`cannot start the rival: ${rivalMissing()}`)
  const [port, ownPort] = (await freePorts(2)) as [number, number]
  // It writes nothing and loads no model.
  const place = { port, ownPort, engines: engineUrls, folder: tmpdir(), modelFolder: tmpdir() }
  const { file, words } = SMG.command(found, place)
  const child = spawn(file, words, { stdio: ['ignore', 'pipe', 'pipe'] })
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
