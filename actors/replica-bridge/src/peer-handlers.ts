/** The routes with which callers register the replicas of a service. */

import { type JsonHandler, sendJson } from '@homing/http'
import { type FollowedPeers, readPeer } from './followed-peers.ts'

export function peerHandlers(peers: FollowedPeers) {
  return {
    async 'POST /replica_sync/register_peer'(exchange, body) {
      await peers.follow(readPeer(await body()))
      return sendJson(exchange, 201, OK)
    },
    async 'POST /replica_sync/deregister_peer'(exchange, body) {
      await peers.unfollow(readPeer(await body()))
      return sendJson(exchange, 200, OK)
    },
    'GET /replica_sync/peers': exchange => sendJson(exchange, 200, peers.endpoints),
  } satisfies Readonly<Record<string, JsonHandler>>
}

const OK = { status: 'ok' }
