/** Options of `homing engine` for https; a part of `ENGINE_OPTIONS`. */

export const TLS_OPTIONS = [
  {
    key: 'tlsCertificateFile',
    name: 'tls-cert',
    group: 'Addresses',
    kind: 'text',
    default: undefined,
    unsetMeans: 'plain HTTP',
    placeholder: 'FILE',
    aliases: ['ssl-certfile'],
    env: 'HOMING_ENGINE_TLS_CERT',
    help: 'Certificate in PEM: the HTTP interface speaks https. Goes with --tls-key.',
  },
  {
    key: 'tlsKeyFile',
    name: 'tls-key',
    group: 'Addresses',
    kind: 'text',
    default: undefined,
    unsetMeans: 'plain HTTP',
    placeholder: 'FILE',
    aliases: ['ssl-keyfile'],
    env: 'HOMING_ENGINE_TLS_KEY',
    help: 'Private key of that certificate, in PEM.',
  },
] as const
