/** The worker of comlink: the same function as everywhere, called from main. */

import { parentPort } from 'node:worker_threads'
import { expose } from 'comlink'
import { threadCpuUs } from '../cpu.ts'
import { add } from './task.ts'

export const exposed = { add, usage: threadCpuUs }

// Its types name no such module, and its `exports` do not hide it.
const adapter: string = 'comlink/dist/esm/node-adapter.mjs'
const nodeEndpoint = ((await import(adapter)) as { default: (port: object) => never }).default

expose(exposed, nodeEndpoint(parentPort!))
