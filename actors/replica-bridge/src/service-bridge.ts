/** The bridge of a service that callers register the other replicas with, as its child. */

import type { ActorContext, ActorRef, Message } from '@homing/actor'
import { CHILD_SUPERVISION } from '@homing/http'
import { newLife } from '@homing/replication'
import type { ReplicaBridgeMessage } from './messages.ts'
import { replicaBridge } from './replica-bridge.ts'
import type { ReplicaBridgeArgs } from './replica-bridge-args.ts'

export interface ServiceBridgeOptions extends Pick<ReplicaBridgeArgs, 'tracker' | 'router' | 'expiryMs'> {
  /** 'tcp://*:5800'. */
  readonly endpoint: string
  /** Of its mailbox. */
  readonly capacity: number
}

/** It follows none until FollowedPeers tells it which: with its first `renew`, and after a restart again. */
export function spawnServiceBridge<M extends Message>(
  context: ActorContext<M>,
  { endpoint, capacity, ...args }: ServiceBridgeOptions,
): ActorRef<ReplicaBridgeMessage> {
  const bridge = context.spawn(replicaBridge, {
    name: 'replica-bridge',
    supervision: CHILD_SUPERVISION,
    mailbox: { capacity },
    args: { ...args, plane: { kind: 'zmq', endpoint, others: [] }, name: newLife(context.random) },
  })
  context.watch(bridge)
  return bridge
}
