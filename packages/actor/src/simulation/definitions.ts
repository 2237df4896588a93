/**
 * Definitions of a simulation: all threads share one heap, so the definition that was spawned is the one
 * found.
 */

import type { AnyDefinition, DefinitionSource } from '../runtime/definitions.ts'
import { UnknownExportError } from '../values/errors.ts'

export class SimulatedDefinitions implements DefinitionSource {
  readonly #known = new Map<string, AnyDefinition>()

  verify(definition: AnyDefinition): void {
    const { moduleUrl, exportName } = definition
    const key = `${moduleUrl} ${exportName}`
    const known = this.#known.get(key)
    if (known === undefined) this.#known.set(key, definition)
    else if (known !== definition) {
      throw new UnknownExportError(
        moduleUrl,
        exportName,
        'another definition of that name was spawned before',
      )
    }
  }

  async find(moduleUrl: string, exportName: string): Promise<AnyDefinition> {
    const known = this.#known.get(`${moduleUrl} ${exportName}`)
    if (known === undefined) throw new UnknownExportError(moduleUrl, exportName, 'nobody has spawned it')
    return known
  }
}
