/** Where a cluster is, by its kubeconfig and in a pod. */

import { inClusterAccess, parseKubeconfig } from '@homing/discovery'
import t from 'tap'

const base64 = (text: string): string => Buffer.from(text).toString('base64')

function kubeconfig(cluster: string, user: string): string {
  return `apiVersion: v1
kind: Config
current-context: here
contexts:
- name: here
  context: {cluster: c, user: u, namespace: models}
clusters:
- name: c
  cluster: ${cluster}
users:
- name: u
  user: ${user}
`
}

t.test('a kubeconfig with data, with files, and without a namespace', async t => {
  const text = kubeconfig(
    `{server: 'https://10.0.0.1:6443/', certificate-authority-data: ${base64('CA')}, tls-server-name: api}`,
    `{client-certificate-data: ${base64('CERT')}, client-key: keys/u.key}`,
  )
  t.strictSame(parseKubeconfig(text, '/home/o/.kube/config'), {
    server: 'https://10.0.0.1:6443',
    namespace: 'models',
    authorities: { text: 'CA' },
    serverName: 'api',
    token: undefined,
    identity: { certificate: { text: 'CERT' }, key: { file: '/home/o/.kube/keys/u.key' } },
  })
  const other = parseKubeconfig(
    kubeconfig("{server: 'https://api.test'}", '{token: s3cret}').replace(', namespace: models', ''),
    'c',
  )
  t.match(other, { server: 'https://api.test:443', namespace: 'default', token: { text: 's3cret' } })
})

t.test('what the router does not do is said, without secrets', async t => {
  const faultOf = (cluster: string, user: string): string => {
    try {
      return JSON.stringify(parseKubeconfig(kubeconfig(cluster, user), 'c'))
    } catch (error) {
      return (error as Error).message
    }
  }
  const server = "{server: 'https://a'}"
  t.match(
    faultOf("{server: 'https://a', insecure-skip-tls-verify: true}", '{}'),
    /always checks; give certificate-authority/,
  )
  t.match(
    faultOf(server, '{exec: {command: aws}, token: s3cret}'),
    /logs in by a program, which the router does not run/,
  )
  t.match(faultOf(server, '{client-certificate: a}'), /needs both, or neither/)
  t.match(faultOf('{}', '{}'), /has no server such as https/)
  t.match(faultOf("{server: 'https://me:s3cret@a'}", '{}'), /must not have a user name/)
  t.notMatch(faultOf("{server: 'https://me:s3cret@a'}", '{}'), /s3cret/)
  t.throws(() => parseKubeconfig('{}', 'c'), /it has no current-context/)
  t.throws(() => parseKubeconfig('[', 'c'), /it is no YAML at line/)
})

t.test('in a pod all is in the files of its service account', async t => {
  t.match(inClusterAccess('fd00::1', '443', 'models\n', '/sa'), {
    server: 'https://[fd00::1]:443',
    namespace: 'models',
    authorities: { file: '/sa/ca.crt' },
    token: { file: '/sa/token' },
  })
})
