/**
 * `homing key`: a new API key for a client or an operator, and its entry for the file of `--client-keys-file`
 * or `--admin-keys-file`.
 */

import { createHash } from 'node:crypto'
import { KEY_NAME, systemRandom } from '@homing/base'
import { ADMIN_ROLES, type AdminRole } from '@homing/http'
import type { CommandEntry } from './command-entry.ts'

const KEY_BYTES = 32

const HELP = `homing key: makes an API key for a client of the router, and its entry for --client-keys-file;
with --role, for an operator and --admin-keys-file.

Usage: homing key NAME [--role reader|operator]

NAME is how the client is called in the queue, in metrics of tenants and in the access log: 1 to 64
letters, digits, or . _ @ -, the first a letter or digit.

Nothing is written or sent anywhere. The first line is the key: 256 random bits. Give it to the client;
it cannot be had again. The rest is the entry for the file, which has only the SHA-256 of the key:

  - name: team-a
    sha256: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'
    models: [llama-70b]                without it: all models
    concurrent_requests: 32            requests at one time; without a limit: as many as there is room for
    requests_per_minute: 600
    tokens_per_minute: 200000          of prompts and answers together

Then: homing router --client-keys-file keys.yaml …
The router looks at the file every second: a client that is added, changed or removed counts within
about two seconds, without a restart. Clients send the key as "authorization: Bearer KEY" (OpenAI's
libraries: api_key), or in x-api-key (Anthropic's).

To replace a key, make a new one and list both digests (sha256: ['OLD', 'NEW']) until the client has
changed over.

With --role reader the key is for the routes of operators, and sees everything there; with
--role operator it also changes workers and thresholds. docs/keys.md goes through it line by line.
`

export const keyCommandEntry: CommandEntry = {
  summary: 'Makes an API key for a client, and its entry for homing router --client-keys-file.',

  async run(argv) {
    if (argv.includes('--help') || argv.includes('-h')) {
      console.log(HELP)
      return 0
    }
    const [name, option, role, ...more] = argv
    const isRole = option === '--role' && isAdminRole(role)
    if (name === undefined || more.length > 0 || (option !== undefined && !isRole) || !KEY_NAME.test(name)) {
      const why =
        name === undefined
          ? 'name the client, as in: homing key team-a'
          : option === '--role' && !isRole
            ? `--role is one of ${ADMIN_ROLES.join(', ')}`
            : option !== undefined
              ? `it takes one name and --role, and there are ${argv.length} words`
              : 'a name has 1 to 64 letters, digits, or . _ @ -, the first a letter or digit'
      console.error(`homing: cannot make a key: ${why} (homing key --help)`)
      return 2
    }
    const key = `hk-${Buffer.from(systemRandom.bytes(KEY_BYTES)).toString('base64url')}`
    const digest = createHash('sha256').update(key).digest('hex')
    console.log(`${key}\n\n- name: ${name}\n  sha256: '${digest}'${isRole ? `\n  role: ${role}` : ''}`)
    return 0
  },
}

function isAdminRole(text: string | undefined): text is AdminRole {
  return (ADMIN_ROLES as readonly (string | undefined)[]).includes(text)
}
