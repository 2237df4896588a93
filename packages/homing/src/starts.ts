/**
 * Starts: what programs call to start a service. Each loads what it needs when it is called, so a program
 * that imports `homing` loads no server with it.
 */

import type { DemoFleet, GivenDemoSettings } from './demo-fleet.ts'
import type { RunningService } from './running-service.ts'
import type { GivenIndexerSettings, RunningIndexer } from './start-indexer.ts'
import type { GivenRouterSettings, RunningRouter } from './start-router.ts'
import type { GivenSelectSettings } from './start-select.ts'
import type { GivenSlotsSettings } from './start-slots.ts'

/**
 * Starts a router in this process and resolves when it serves: it listens, and each worker was probed once.
 * Rejects with SettingsError for all that is wrong with the settings at once, ListenError when the port
 * cannot be had, TokenizerLoadError for a directory of `tokenizers` that cannot be used,
 * CheckpointDirectoryError, DecisionLogFileError, AccessLogError and LearnedFileError likewise.
 */
export async function startRouter(given: GivenRouterSettings): Promise<RunningRouter> {
  const { routerSettingsOf, serveRouter } = await import('./start-router.ts')
  const { guardian: _, ...router } = await serveRouter(routerSettingsOf(given))
  return router
}

/**
 * Starts an indexer in this process and resolves when it serves: after its peers, where there are any.
 * Rejects with SettingsError for all that is wrong with the settings at once, ListenError when the port
 * cannot be had, AccessLogError.
 */
export async function startIndexer(given: GivenIndexerSettings): Promise<RunningIndexer> {
  const { serveIndexer, indexerSettingsOf } = await import('./start-indexer.ts')
  return serveIndexer(indexerSettingsOf(given))
}

/**
 * Starts a slot tracker in this process and resolves when it serves. Rejects with SettingsError for all that
 * is wrong with the settings at once, ListenError when the port cannot be had, AccessLogError.
 */
export async function startSlots(given: GivenSlotsSettings = {}): Promise<RunningService> {
  const { serveSlots, slotsSettingsOf } = await import('./start-slots.ts')
  return serveSlots(slotsSettingsOf(given))
}

/**
 * Starts a selection service in this process and resolves when it serves. Rejects with SettingsError for all
 * that is wrong with the settings at once, ListenError when the port cannot be had, AccessLogError.
 */
export async function startSelect(given: GivenSelectSettings = {}): Promise<RunningService> {
  const { serveSelect, selectSettingsOf } = await import('./start-select.ts')
  return serveSelect(selectSettingsOf(given))
}

/**
 * Starts `demoEngines` engines on free ports. They behave as one model: equal prompts, equal answers. Rejects
 * with SettingsError for settings that cannot be.
 */
export async function startDemoFleet(given: GivenDemoSettings = {}): Promise<DemoFleet> {
  const { serveDemoFleet } = await import('./demo-fleet.ts')
  return serveDemoFleet(given)
}
