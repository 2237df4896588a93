/**
 * Writes docs/configuration.md from the tables of settings: `pnpm run docs`. A test compares.
 */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import {
  type Command,
  doctorCommand,
  indexerCommand,
  loadCommand,
  pickerCommand,
  renderReference,
  routerCommand,
  selectCommand,
  sidecarCommand,
  simulateCommand,
  slotsCommand,
} from '@homing/config'
import { ENGINE_OPTIONS } from '@homing/engine'

export const CONFIGURATION_PATH = join(import.meta.dirname, '..', 'docs', 'configuration.md')

const engineCommand: Command<typeof ENGINE_OPTIONS> = {
  name: 'engine',
  summary: 'One simulated engine: OpenAI HTTP, KV events and replay, timed like a GPU, without one.',
  settings: ENGINE_OPTIONS,
  examples: [{ does: 'An engine on port 8001, events on 5557, replay on 6557:', line: 'homing engine' }],
}

const HEADER = `# Configuration

Written by \`pnpm run docs\` from the tables in \`packages/config\`; change them there. \`homing COMMAND --help\` shows the same.
In a checkout, \`homing\` is \`npx --yes pnpm@10 start\`.

Each setting can be given on the command line, in the environment, and in a YAML file (\`--config FILE\` or
\`HOMING_CONFIG\`) under the option's name without its dashes. The command line wins over the environment, the environment
over the file. An unknown option, an unknown key of the file or a value out of range stops the command with exit code 2
and one line per fault, all of them at once.

- **Durations** are \`500ms\`, \`30s\`, \`5m\`, \`2h\`, or a bare number of seconds. **Sizes** are \`512KiB\`, \`64MiB\`, \`1GiB\`, or a
  bare number of bytes.
- **On or off** is \`--name\` or \`--no-name\`; in a variable or file \`true\` or \`false\`.
- **Repeatable** options collect; in a variable the items are separated by commas (workers also by spaces), in a file they
  are a list. A list given in one place replaces the list of another. An empty list in a file (\`peers: []\`) means none; only
  \`worker\` must not be empty if it is given.
- **Key** is the name of the setting in a program that embeds the router or the indexer. Its value has the unit that the key ends with:
  see [embedding.md](embedding.md).
- \`DYN_*\` variables are read if our own is not set, each with one warning. They never stop a command: one that has no
  counterpart, cannot be read or contradicts other settings is ignored, and a warning says so.
`

const PICKER = `## homing picker

${pickerCommand.summary} Its settings are those of \`homing router\`, with these defaults:

| setting | default |
|---|---|
${differentDefaults()}
`

function differentDefaults(): string {
  const defaultOf = (setting: object | undefined): unknown =>
    (setting as { readonly default?: unknown } | undefined)?.default
  return pickerCommand.settings
    .flatMap(setting => {
      const ofRouter = routerCommand.settings.find(({ key }) => key === setting.key)
      const isOther = defaultOf(setting) !== defaultOf(ofRouter)
      return isOther ? [`| \`--${setting.name}\` | ${String(defaultOf(setting))} |`] : []
    })
    .join('\n')
}

/** The whole page. */
export function renderConfiguration(): string {
  const parts = [
    HEADER,
    renderReference(routerCommand),
    PICKER,
    renderReference(engineCommand),
    renderReference(sidecarCommand),
    renderReference(indexerCommand),
    renderReference(slotsCommand),
    renderReference(selectCommand),
    renderReference(simulateCommand),
    renderReference(loadCommand),
    renderReference(doctorCommand),
  ]
  return `${parts.join('\n').trimEnd()}\n`
}

if (import.meta.main) {
  writeFileSync(CONFIGURATION_PATH, renderConfiguration())
  process.stdout.write(`wrote ${CONFIGURATION_PATH}\n`)
}
