/**
 * Children: all actors of the router but the guardian, in the order of their start; each gets the refs of
 * those before it.
 *
 * The list has name, thread, mailbox and supervision. Code beside each actor makes its arguments from the
 * settings.
 */

import type { ActorContext, Supervision } from '@homing/actor'
import { consoleArgsFromSettings, OPERATOR_ROUTES, operatorConsole } from '@homing/actors/console'
import { decisionLog, decisionLogArgsFromSettings } from '@homing/actors/decision-log'
import { directory, directoryArgsFromSettings } from '@homing/actors/directory'
import { engineUsage, engineUsageArgsFromSettings } from '@homing/actors/engine-usage'
import { relayedNames } from '@homing/actors/gateway'
import { createGuessCounts, indexer, indexerArgsFromSettings } from '@homing/actors/indexer'
import { isQueueOn, queue, queueArgsFromSettings } from '@homing/actors/queue'
import { replicaBridge, replicaBridgeArgsFromSettings } from '@homing/actors/replica-bridge'
import { router, routerArgsFromSettings } from '@homing/actors/router'
import { tokenizer, tokenizerArgsFromSettings } from '@homing/actors/tokenizer'
import { tracker, trackerArgsFromSettings } from '@homing/actors/tracker'
import { whatIf, whatIfArgsFromSettings } from '@homing/actors/what-if'
import { readRelayRoute } from '@homing/config'
import { createIndexDoor } from '@homing/index'
import { newLife } from '@homing/replication'
import { spawnGateways } from './gateways.ts'
import type { GuardianArgs } from './guardian-args.ts'
import type { GuardianMessage } from './messages.ts'
import { SUPERVISION, spawner } from './spawner.ts'

/** For actors that requests do not need. The backoff keeps their restarts far below this limit. */
const UNLIMITED: Supervision = { ...SUPERVISION, max: 1000 }

/** Mailbox room per open request at an actor of the request path. */
const MESSAGES_PER_REQUEST = 4
/** Engine usage gets a few messages of each worker at most. */
const MESSAGES_PER_WORKER = 4
/** Room for messages that no request and no worker stands for. */
const MAILBOX_SLACK = 1024

export type Children = ReturnType<typeof spawnChildren>

export function spawnChildren(
  context: ActorContext<GuardianMessage>,
  { settings, inputs, isOnOneThread = false }: GuardianArgs,
) {
  const { openRequestsMax, workerSlotsMax } = settings
  const { spawn, spawnIfOn } = spawner(context, openRequestsMax * MESSAGES_PER_REQUEST + MAILBOX_SLACK)

  const guessCounts = createGuessCounts(settings.eventThreads)
  const shards = Array.from({ length: settings.eventThreads }, (_, shard) => {
    // Made here so that it outlives the indexer: by it readers know when that has begun anew.
    const memory = createIndexDoor()
    const args = indexerArgsFromSettings(settings, { shard, memory, guessCounts })
    const thread = isOnOneThread ? 'here' : `events-${shard}`
    return { memory, ref: spawn(indexer, `indexer-${shard}`, args, { thread }) }
  })
  const indexers = shards.map(({ ref }) => ref)
  const indexMemories = shards.map(({ memory }) => memory)

  const { specs, fileWorkers, discovery, engineKey, customSelection, policyClasses } = inputs
  const directoryRef = spawn(
    directory,
    'directory',
    directoryArgsFromSettings(settings, {
      specs,
      fileWorkers,
      discovery,
      engineKey,
      indexers,
      keeper: context.self,
    }),
  )
  const trackerRef = spawn(
    tracker,
    'tracker',
    trackerArgsFromSettings(settings, { directory: directoryRef, keeper: context.self }),
  )
  const usageRef = spawnIfOn(
    engineUsage,
    'engine-usage',
    engineUsageArgsFromSettings(settings, { tracker: trackerRef, directory: directoryRef }),
    { supervision: UNLIMITED, mailbox: { capacity: workerSlotsMax * MESSAGES_PER_WORKER + MAILBOX_SLACK } },
  )
  const tokenizerRef = spawn(
    tokenizer,
    'tokenizer',
    tokenizerArgsFromSettings(settings, {
      loaded: inputs.loadedTokenizers,
      chatTemplates: inputs.chatTemplates,
      directory: directoryRef,
      isOnOneThread,
    }),
  )
  const decisionLogRef = spawnIfOn(
    decisionLog,
    'decision-log',
    decisionLogArgsFromSettings(settings, customSelection?.name),
    // A line of a long prompt takes milliseconds; this mailbox is a few seconds of a busy router.
    { thread: 'dedicated', supervision: UNLIMITED, mailbox: { capacity: MAILBOX_SLACK } },
  )
  const whatIfRef = spawnIfOn(
    whatIf,
    'what-if',
    whatIfArgsFromSettings(settings, { tracker: trackerRef, customPolicy: customSelection?.name }),
    { supervision: UNLIMITED, mailbox: { capacity: openRequestsMax + MAILBOX_SLACK } },
  )
  const routerRef = spawn(
    router,
    'router',
    routerArgsFromSettings(settings, {
      customSelection,
      tracker: trackerRef,
      directory: directoryRef,
      decisionLog: decisionLogRef,
      whatIf: whatIfRef,
      indexMemories,
      indexers,
      keeper: context.self,
    }),
  )
  const queueArgs = queueArgsFromSettings(settings, {
    customSelection,
    policyClasses,
    router: routerRef,
    tracker: trackerRef,
  })
  const queueRef = spawn(queue, 'queue', queueArgs)
  const bridgeRef = spawnIfOn(
    replicaBridge,
    'replica-bridge',
    replicaBridgeArgsFromSettings(settings, {
      tracker: trackerRef,
      router: routerRef,
      queue: queueRef,
      name: newLife(context.random),
      ownAddress: inputs.ownAddress,
    }),
    { supervision: UNLIMITED },
  )
  const owners = {
    tokenizer: tokenizerRef,
    queue: queueRef,
    router: routerRef,
    directory: directoryRef,
    tracker: trackerRef,
  }
  const consoleRef = spawn(
    operatorConsole,
    'console',
    consoleArgsFromSettings(settings, {
      ...owners,
      adminKey: inputs.adminKey,
      adminKeys: inputs.adminKeys,
      tls: inputs.tls,
      relayed: settings.frontend ? relayedNames(settings.relayRoutes.map(readRelayRoute)) : [],
      indexers,
      replicaBridge: bridgeRef,
      decisionLog: decisionLogRef,
      whatIf: whatIfRef,
    }),
    { supervision: UNLIMITED },
  )
  const gatewayParts = {
    ...owners,
    isQueueOn: isQueueOn(queueArgs.rules),
    tls: inputs.tls,
    clientKeys: inputs.clientKeys,
    hasKeys:
      engineKey !== undefined ||
      inputs.adminKey !== undefined ||
      inputs.adminKeys !== undefined ||
      inputs.clientKeys !== undefined ||
      specs.some(({ key }) => key),
    operators: { console: consoleRef, routes: OPERATOR_ROUTES },
  }
  const gateways = spawnGateways(context, spawn, { settings, inputs }, gatewayParts)
  return {
    indexers,
    directory: directoryRef,
    tracker: trackerRef,
    usage: usageRef,
    tokenizer: tokenizerRef,
    decisionLog: decisionLogRef,
    whatIf: whatIfRef,
    router: routerRef,
    queue: queueRef,
    replicaBridge: bridgeRef,
    console: consoleRef,
    gateways,
  }
}
