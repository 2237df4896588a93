/** comlink: calls of a function on a worker. */

import { Worker } from 'node:worker_threads'
import type { Asked } from '../cross-ask-rows.ts'
import type { exposed } from './comlink-worker.ts'
import { crossAsk, crossAskSequential, load, type Rival, versionOf } from './rival.ts'

interface Comlink {
  wrap(endpoint: object): Remote<typeof exposed>
}

type Remote<T extends Readonly<Record<string, (...words: never[]) => unknown>>> = {
  readonly [Name in keyof T]: (...words: Parameters<T[Name]>) => Promise<ReturnType<T[Name]>>
}

interface NodeAdapter {
  readonly default: (worker: Worker) => object
}

export const comlink: Rival = {
  version: () => versionOf('comlink'),
  rows: {
    crossAsk: () => withWorker(crossAsk),
    crossAskSequential: () => withWorker(crossAskSequential),
  },
}

async function withWorker<T>(use: (asked: Asked) => Promise<T>): Promise<T> {
  const { wrap } = (await load('comlink')) as Comlink
  const nodeEndpoint = ((await load('comlink/dist/esm/node-adapter.mjs')) as NodeAdapter).default
  const worker = new Worker(new URL('./comlink-worker.ts', import.meta.url), { execArgv: [] })
  const { add, usage } = wrap(nodeEndpoint(worker))
  try {
    return await use({ add: a => add({ a }).then(({ answer }) => answer), usageUs: () => usage() })
  } finally {
    await worker.terminate()
  }
}
