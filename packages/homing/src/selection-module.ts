/** The module of `--selection-module`: the user's own selection, loaded before anything is started. */

import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { SettingsError } from '@homing/config'
import { type CustomSelection, faultOfSelection } from '@homing/selection'

/**
 * `module`: a path, from the working directory, or a file: URL. `command`: that was given it. Rejects with
 * SettingsError when it has no selection.
 */
export async function loadSelection(module: string, command = 'router'): Promise<CustomSelection> {
  const fail = (why: string): never => {
    throw new SettingsError(command, [`--selection-module ${JSON.stringify(module)} ${why}`])
  }
  const url = module.startsWith('file:') ? module : pathToFileURL(resolve(module)).href
  let exported: { readonly default?: unknown }
  try {
    exported = (await import(url)) as typeof exported
  } catch (thrown) {
    return fail(`cannot be loaded: ${thrown instanceof Error ? thrown.message : String(thrown)}`)
  }
  const fault = faultOfSelection(exported.default)
  if (fault !== undefined) return fail(`has no selection as its default export: ${fault}`)
  return exported.default as CustomSelection
}
