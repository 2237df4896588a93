export { natsServersOf } from './broker-settings.ts'
export { type CompleteOptions, completeSettings, type GivenSettings } from './complete-settings.ts'
export type {
  ChoiceSetting,
  Command,
  ComputedDefault,
  DurationSetting,
  EnvironmentAlias,
  FlagSetting,
  ListSetting,
  Machine,
  NumberSetting,
  RuleFacts,
  SettingDescriptor,
  SettingSource,
  SettingsOf,
  SizeSetting,
  TextSetting,
} from './descriptor.ts'
export { type DoctorSettings, doctorCommand } from './doctor-command.ts'
export { type IndexerSettings, indexerCommand } from './indexer-command.ts'
export { asksForHelp, type ParsedSettings, type ParseOptions, parseSettings } from './parse-settings.ts'
export { type RelayRoute, readRelayRoute, relayRouteFault } from './relay-route.ts'
export { renderHelp, renderReference } from './render-help.ts'
export { readTenantWeights } from './router/queue-settings.ts'
export { type RouterSettings, routerCommand } from './router-command.ts'
export { ENGINE_KEY_VARIABLE, secretVariable } from './secret-variable.ts'
export { SettingsError } from './settings-error.ts'
export { type SidecarSettings, sidecarCommand } from './sidecar-command.ts'
export { numbersOf, type SimulateSettings, simulateCommand } from './simulate-command.ts'
