export {
  type ChoiceSetting,
  type Command,
  type ComputedDefault,
  type DurationSetting,
  type EnvironmentAlias,
  environmentName,
  type FlagSetting,
  type ListSetting,
  type Machine,
  type NumberSetting,
  type RuleFacts,
  type SettingDescriptor,
  type SettingSource,
  type SettingsOf,
  type SizeSetting,
  type TextSetting,
} from './descriptor.ts'
export { asksForHelp, type ParsedSettings, type ParseOptions, parseSettings } from './parse-settings.ts'
export { renderHelp, renderReference } from './render-help.ts'
export { type RouterSettings, routerCommand } from './router-command.ts'
export { SettingsError } from './settings-error.ts'
