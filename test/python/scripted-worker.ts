/** Workers of token ids in Python for tests, with the scripts of those in TypeScript (scripted_worker.py). */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { readTokenRequest, type TokenRequest } from '@homing/protocol'
import { RefuseRequestError } from '@homing/worker'
import type { Test } from 'tap'
import { TINY_TOKENIZER } from '../system/fleet.ts'
import {
  MODEL,
  type Plane,
  type Script,
  type Scripted,
  type StartedWorker,
  type WorkerPlace,
} from '../system/token-world.ts'
import { CLIENT, type Python, pythonEnvironment } from './interpreter.ts'

const PROGRAM = join(import.meta.dirname, 'scripted_worker.py')

export interface StartedPython extends StartedWorker {
  readonly worker: PythonWorker
}

/** Starts them by the Python for their plane. `cached`: tokens whose blocks of 16 they say that they hold. */
export function pythonWorkers(pythonOf: (plane: Plane) => Python) {
  return async (
    t: Test,
    scripts: readonly Script[],
    place: WorkerPlace,
    cached: readonly number[] = [],
  ): Promise<StartedPython> => {
    const { requestPlane = 'http', nats = [], namespace = 'default', port = 0 } = place
    const { contextLength = 4096, etcd = [] } = place
    const options = {
      model_name: MODEL,
      model_path: TINY_TOKENIZER,
      context_length: contextLength,
      request_plane: requestPlane,
      nats,
      etcd,
      namespace,
      port,
    }
    const given = JSON.stringify({ options, scripts: scripts.map(told), cached })
    const child = spawn(pythonOf(requestPlane).path, [PROGRAM, given], {
      cwd: CLIENT,
      env: pythonEnvironment(),
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    t.teardown(() => child.kill('SIGKILL'))
    const worker = new PythonWorker(child)
    return {
      worker,
      url: await worker.url,
      openRequests: () => worker.ask('open', 'open'),
      async close(graceMs) {
        await worker.ask(`close ${graceMs / 1000}`, 'closed')
      },
      async die() {
        child.kill('SIGKILL')
        await once(child, 'exit')
      },
    }
  }
}

/** As the program reads it. */
function told({ ids, holdsAt = [], failsAt, failure, pieceTokens, isEndless }: Script): object {
  const refusal = failure instanceof RefuseRequestError ? failure.message : undefined
  return { ids, holdsAt: [holdsAt].flat(), failsAt, refusal, pieceTokens, isEndless }
}

export class PythonWorker implements Scripted {
  readonly requests: TokenRequest[] = []
  cancelled = 0
  ended = 0
  held = 0
  readonly url: Promise<string>
  readonly #child: ChildProcess
  readonly #waiting = new Map<string, ((value: number) => void)[]>()

  constructor(child: ChildProcess) {
    this.#child = child
    const first = Promise.withResolvers<string>()
    this.url = first.promise
    child.once('close', code => first.reject(new Error(`the worker in Python ended with ${code}`)))
    // biome-ignore lint/suspicious/noExplicitAny: words of many forms
    createInterface(child.stdout!).on('line', line => this.#heard(JSON.parse(line) as any, first.resolve))
  }

  go(): void {
    this.held = 0
    this.#child.stdin!.write('go\n')
  }

  /** Outputs that all generators gave. */
  given(): Promise<number> {
    return this.ask('given', 'given')
  }

  /** Resolves with the next word of this name. */
  ask(command: string, name: string): Promise<number> {
    return new Promise(resolve => {
      this.#waiting.set(name, [...(this.#waiting.get(name) ?? []), resolve])
      this.#child.stdin!.write(`${command}\n`)
    })
  }

  // biome-ignore lint/suspicious/noExplicitAny: words of many forms
  #heard(word: any, started: (url: string) => void): void {
    if (word.url !== undefined) started(word.url)
    if (word.request !== undefined)
      this.requests.push(readTokenRequest(Buffer.from(JSON.stringify(word.request))))
    this.held += word.held ?? 0
    this.cancelled += word.cancelled ?? 0
    this.ended += word.ended ?? 0
    for (const name of ['open', 'given', 'closed'])
      if (word[name] !== undefined) this.#waiting.get(name)?.shift()?.(word[name])
  }
}
