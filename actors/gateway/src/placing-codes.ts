/** Codes of queue and router with which a request is not placed, and after which the gateway acts by them. */

/** Its deadline passed in the queue: it holds for the whole request. */
export const DEADLINE = 'HOMING_QUEUE_DEADLINE'
/** No worker has the model; its error names those that there are. */
export const MODEL_NOT_FOUND = 'HOMING_ROUTER_MODEL_NOT_FOUND'
/** All workers are past a busy threshold. */
export const ALL_BUSY = 'HOMING_ROUTER_ALL_BUSY'
