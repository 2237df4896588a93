/** Settings of `homing router` for a network that is not trusted: https on its ports, keys of clients. */

import type { SettingDescriptor } from '../descriptor.ts'

export const accessSettings = [
  {
    key: 'tlsCertificateFile',
    name: 'tls-cert',
    group: 'Listening',
    kind: 'text',
    default: undefined,
    unsetMeans: 'plain HTTP',
    placeholder: 'FILE',
    aliases: ['ssl-certfile', 'tls-cert-path'],
    envAliases: [{ name: 'DYN_TLS_CERT_PATH' }],
    help: 'Certificate in PEM, with those that are needed to check it behind it: --port and --admin-port speak https, and nothing else. Goes with --tls-key. Both files are looked at once a second; connections that begin after a change see the new certificate, without a restart.',
  },
  {
    key: 'tlsKeyFile',
    name: 'tls-key',
    group: 'Listening',
    kind: 'text',
    default: undefined,
    unsetMeans: 'plain HTTP',
    placeholder: 'FILE',
    aliases: ['ssl-keyfile', 'tls-key-path'],
    envAliases: [{ name: 'DYN_TLS_KEY_PATH' }],
    help: 'Private key of that certificate, in PEM and without a passphrase.',
  },
  {
    key: 'clientKeysFile',
    name: 'client-keys-file',
    group: 'Listening',
    kind: 'text',
    default: undefined,
    unsetMeans: 'requests need no key',
    placeholder: 'FILE',
    help: 'YAML or JSON file with the clients that may send requests: name, SHA-256 of the key, and what they may use (models, concurrent_requests, requests_per_minute, tokens_per_minute); homing key makes keys and entries. Without a known key, everything on --port but /health, /ready and the operator routes is 401. The name of the client is its tenant. The file is looked at once a second. The operator routes do not ask for these keys: give --admin-port.',
  },
] as const satisfies readonly SettingDescriptor[]
