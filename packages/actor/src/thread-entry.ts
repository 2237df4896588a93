/**
 * Thread entry: what a worker of an actor system runs. It gets everything from main in `workerData`:
 * its name, a port to every other thread, and the actors that were here before it was replaced.
 */

import { workerData } from 'node:worker_threads'
import type { ThreadInit } from './thread.ts'
import { startThread } from './thread.ts'

startThread(workerData as ThreadInit)
