/**
 * Reads what the settings of a router name: workers, tokenizers, keys, certificates, policies. All of it
 * before anything is started.
 */

import { readFile } from 'node:fs/promises'
import type { RouterInputs } from '@homing/actors/guardian'
import { queueOrderOf } from '@homing/actors/queue'
import { addressSought } from '@homing/actors/replica-bridge'
import { readGivenTokenizers } from '@homing/actors/tokenizer'
import { type RouterSettings, SettingsError } from '@homing/config'
import { type LoadedTokenizer, loadTokenizer, PromptTokenizer } from '@homing/tokenization'
import { ownAddressTowards } from '@homing/transport'
import { readAdminKey } from './admin-key-file.ts'
import { loadAdminKeys } from './admin-keys-file.ts'
import { loadClientKeys } from './client-keys-file.ts'
import { givenEngineKey, readCertificates } from './engine-access.ts'
import { loadPolicyClasses } from './policy-class-file.ts'
import { loadSelection } from './selection-module.ts'
import { readTls } from './tls-access.ts'
import { readDiscovery } from './worker-discovery.ts'
import { parseWorkers } from './worker-specs.ts'
import { loadWorkersFile } from './workers-file.ts'

/** Throws the error of the first that cannot be used: TokenizerLoadError, and those of the files. */
export async function readRouterInputs(settings: RouterSettings): Promise<RouterInputs> {
  const specs = parseWorkers(settings.workers)
  const loadedTokenizers = await loadTokenizers(settings.tokenizers)
  const customSelection = await ifNamed(settings.selectionModule, loadSelection)
  const policyClasses = await ifNamed(settings.policyClassFile, path =>
    loadPolicyClasses(path, queueOrderOf(settings, customSelection), settings.trackPrefillTokens),
  )
  return {
    specs,
    loadedTokenizers,
    chatTemplates: await readChatTemplates(settings.chatTemplates),
    customSelection,
    policyClasses,
    engineKey: givenEngineKey(settings.engineKeyFile),
    engineCertificates: await ifNamed(settings.engineCaFile, readCertificates),
    fileWorkers: await ifNamed(settings.workersFile, loadWorkersFile),
    discovery: await readDiscovery(settings),
    ownAddress: await ownAddressOf(settings),
    tls: await readTls(settings),
    clientKeys: await ifNamed(settings.clientKeysFile, loadClientKeys),
    adminKey: await ifNamed(settings.adminKeyFile, readAdminKey),
    adminKeys: await loadAdminKeys(settings),
  }
}

async function ownAddressOf(settings: RouterSettings): Promise<string | undefined> {
  const sought = addressSought(settings)
  // The port does not matter for the way.
  return sought && ownAddressTowards(sought.server.hostname, Number(sought.server.port || 443), sought.family)
}

/** At the first request it would be too late: every prompt would silently be asked of an engine. */
async function loadTokenizers(given: readonly string[]): Promise<ReadonlyMap<string, LoadedTokenizer>> {
  const loadedTokenizers = new Map<string, LoadedTokenizer>()
  for (const directory of new Set(readGivenTokenizers(given).values())) {
    const loaded = await loadTokenizer(directory)
    // Its template, and the library where that is needed.
    PromptTokenizer.of(loaded)
    loadedTokenizers.set(directory, loaded)
  }
  return loadedTokenizers
}

/** Their texts, by model. Rejects with SettingsError. */
async function readChatTemplates(given: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const texts = new Map<string, string>()
  for (const [model, file] of readGivenTokenizers(given)) {
    const text = await readFile(file, 'utf8').catch((thrown: Error) => {
      const fault = `--chat-template ${JSON.stringify(file)} cannot be read: ${thrown.message}`
      throw new SettingsError('router', [fault])
    })
    texts.set(model, text)
  }
  return texts
}

async function ifNamed<T>(
  name: string | undefined,
  read: (name: string) => Promise<T>,
): Promise<T | undefined> {
  return name === undefined ? undefined : read(name)
}
