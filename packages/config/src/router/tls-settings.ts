/** Settings of `homing router`: https on its ports. */

import type { SettingDescriptor } from '../descriptor.ts'

export const tlsSettings = [
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
] as const satisfies readonly SettingDescriptor[]
