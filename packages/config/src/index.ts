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
export { type RouterSettings, routerCommand } from './router-command.ts'
