import type { ActorContext, SystemView } from '@homing/actor'
import type { Fleet } from '@homing/directory'
import type { Bodies } from './bodies.ts'
import type { GatewayArgs } from './gateway-args.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { GatewayMessage } from './messages.ts'
import type { OpenExchanges } from './open-exchanges.ts'

/** What every part of the gateway works with. */
export interface GatewayParts {
  readonly context: ActorContext<GatewayMessage>
  readonly args: GatewayArgs
  readonly bodies: Bodies
  readonly exchanges: OpenExchanges
  readonly metrics: GatewayMetrics
  readonly newId: () => string
  readonly fleet: () => Fleet
  readonly system: SystemView
}
