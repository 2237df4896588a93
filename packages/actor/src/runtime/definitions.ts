/** Definitions across threads: found again by the URL of their module and the name of their export. */

import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { types } from 'node:util'
import { isDefinition } from '../contract/define.ts'
import type { ActorDefinition } from '../contract/types.ts'
import { ModuleImportError, UnknownExportError } from '../values/errors.ts'
import type { Message } from '../values/message.ts'

export type AnyDefinition = ActorDefinition<Message, unknown>

/** How definitions reach other threads. */
export interface DefinitionSource {
  /** Throws UnknownExportError for a definition that the other thread would not find. */
  verify(definition: AnyDefinition): void
  /**
   * The definition that another thread spawned here. Rejects with ModuleImportError or UnknownExportError.
   */
  find(moduleUrl: string, exportName: string, thread: string): Promise<AnyDefinition>
}

const verified = new WeakSet<AnyDefinition>()
const require = createRequire(import.meta.url)

/**
 * Throws UnknownExportError when the module of `definition` does not export it. Says nothing about a
 * module that cannot be looked at synchronously (it is still running, or awaits at its top level):
 * then the thread that imports it reports the same error as the reason why the actor ended.
 */
function verifyExport(definition: AnyDefinition): void {
  if (verified.has(definition)) return
  const { moduleUrl, exportName } = definition
  const namespace = tryNamespace(moduleUrl)
  if (namespace === undefined) return
  checkExport(namespace, moduleUrl, exportName)
  verified.add(definition)
}

/** The definition that another thread spawned here. Rejects with ModuleImportError or UnknownExportError. */
async function importDefinition(
  moduleUrl: string,
  exportName: string,
  thread: string,
): Promise<AnyDefinition> {
  let namespace: Record<string, unknown>
  try {
    namespace = (await import(moduleUrl)) as Record<string, unknown>
  } catch (error) {
    throw new ModuleImportError(moduleUrl, thread, error)
  }
  return checkExport(namespace, moduleUrl, exportName)
}

function checkExport(
  namespace: Record<string, unknown>,
  moduleUrl: string,
  exportName: string,
): AnyDefinition {
  if (!Object.hasOwn(namespace, exportName)) {
    throw new UnknownExportError(moduleUrl, exportName, 'the module has no export of that name')
  }
  const found = namespace[exportName]
  if (!isDefinition(found)) {
    throw new UnknownExportError(moduleUrl, exportName, 'that export is not made by defineActor')
  }
  if (found.exportName !== exportName) {
    throw new UnknownExportError(moduleUrl, exportName, `that export calls itself '${found.exportName}'`)
  }
  return found
}

/** Definitions are exports of modules. */
export const moduleDefinitions: DefinitionSource = { verify: verifyExport, find: importDefinition }

/** The namespace of a module that is loaded already, or undefined when it cannot be had now. */
function tryNamespace(moduleUrl: string): Record<string, unknown> | undefined {
  if (!moduleUrl.startsWith('file:')) return undefined
  try {
    const namespace = require(fileURLToPath(moduleUrl)) as object
    // While a module runs, something else than its namespace comes back.
    if (!types.isModuleNamespaceObject(namespace)) return undefined
    const exported = namespace as Record<string, unknown>
    for (const name of Object.keys(exported)) void exported[name]
    return exported
  } catch {
    return undefined
  }
}
