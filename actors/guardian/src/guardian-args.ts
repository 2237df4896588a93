/** Arguments of the guardian: the settings of the router, and the files and modules that they name. */

import type { ConsoleArgs } from '@homing/actors/console'
import type { DirectoryArgs } from '@homing/actors/directory'
import type { ClientKeysArgs } from '@homing/actors/gateway'
import type { TokenizerArgs } from '@homing/actors/tokenizer'
import type { RouterSettings } from '@homing/config'
import type { TlsArgs } from '@homing/http'
import type { PolicyFile } from '@homing/queue'
import type { CustomSelection } from '@homing/selection'

export interface GuardianArgs {
  /** Each actor's part of them is made into its arguments beside that actor: `…ArgsFromSettings`. */
  readonly settings: RouterSettings
  readonly inputs: RouterInputs
  /** No thread but the guardian's own: for a warm-up. Default: the threads of the settings. */
  readonly isOnOneThread?: boolean
}

/** Contents of files, variables and modules that the settings name, read once before the start. */
export interface RouterInputs {
  readonly specs: DirectoryArgs['specs']
  readonly fileWorkers?: DirectoryArgs['fileWorkers']
  /** Where workers are found besides. */
  readonly discovery?: DirectoryArgs['discovery']
  /** Of this machine, where other replicas are told it. */
  readonly ownAddress?: string | undefined
  /** Where the API key of the engines stands, not the key. */
  readonly engineKey?: DirectoryArgs['engineKey']
  /** Certificates in PEM that are trusted besides those of Node and of the system. */
  readonly engineCertificates?: string | undefined
  /** Certificate and key of the ports; undefined: plain HTTP. */
  readonly tls?: TlsArgs | undefined
  /** Clients that may send requests; undefined: requests need no key. */
  readonly clientKeys?: ClientKeysArgs | undefined
  /** Undefined: only callers on this machine may change workers and thresholds. */
  readonly adminKey?: ConsoleArgs['adminKey']
  /** Undefined: operators have no roles. */
  readonly adminKeys?: ConsoleArgs['adminKeys']
  /** By directory: tokenizers that are loaded already. */
  readonly loadedTokenizers: TokenizerArgs['loaded']
  /** Texts of the chat templates that replace those of the directories, by model; '': of all others. */
  readonly chatTemplates?: ReadonlyMap<string, string> | undefined
  /** A custom selection that replaces the policy. */
  readonly customSelection?: CustomSelection | undefined
  readonly policyClasses?: PolicyFile | undefined
}
