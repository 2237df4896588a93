export { natsServersOf } from './broker-settings.ts'
export { completeSettings, type GivenSettings } from './complete-settings.ts'
export type { Command, Machine, SettingDescriptor, SettingSource } from './descriptor.ts'
export { type DoctorSettings, doctorCommand } from './doctor-command.ts'
export { etcdServersOf } from './etcd-settings.ts'
export { foreignEngineOptions } from './foreign-options.ts'
export { type IndexerSettings, indexerCommand } from './indexer-command.ts'
export { comparedRequests, type LoadSettings, loadCommand } from './load-command.ts'
export { type ModelAlias, modelAliasFault, readModelAlias } from './model-alias.ts'
export { asksForHelp, parseSettings } from './parse-settings.ts'
export { pickerCommand } from './picker-command.ts'
export { type RelayRoute, readRelayRoute, relayRouteFault } from './relay-route.ts'
export { renderHelp, renderReference } from './render-help.ts'
export { AFFINITY_FIELDS, AFFINITY_HEADERS } from './router/affinity-names.ts'
export { readTenantWeights, readTrustedHints, type TrustedHints } from './router/queue-settings.ts'
export { linearBy, type RouterSettings, routerCommand } from './router-command.ts'
export {
  ENGINE_KEY_VARIABLE,
  LOAD_AGAINST_KEY_VARIABLE,
  LOAD_KEY_VARIABLE,
  secretVariable,
} from './secret-variable.ts'
export { routerSettingsOfSelect, type SelectSettings, selectCommand } from './select-command.ts'
export { SettingsError } from './settings-error.ts'
export { type SidecarSettings, sidecarCommand } from './sidecar-command.ts'
export { numbersOf, type SimulateSettings, simulateCommand } from './simulate-command.ts'
export { type SlotsSettings, slotsCommand } from './slots-command.ts'
export { type StreamSettings, streamOf, streamSettings } from './stream-settings.ts'
export { faultOfTcpServer, type TcpSettings, tcpLimitsOf, tcpServerSettings } from './tcp-settings.ts'
