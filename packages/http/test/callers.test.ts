/** Which callers are of this machine, and which are pages of other sites. */

import t from 'tap'
import { assertNoStrangePage, HostNames, isFromHere } from '../src/index.ts'

type Headers = Readonly<Record<string, string | readonly string[]>>

const HERE = '127.0.0.1'
const ELSEWHERE = '10.0.0.7'
const names = new HostNames('router.internal', ['chat.example.org'], 'gpu-7')

function isStrange(headers: Headers, peerAddress: string): boolean {
  try {
    assertNoStrangePage({ headers, peerAddress, method: 'GET', path: '/workers' }, names)
    return false
  } catch (thrown) {
    t.match(thrown, { code: 'HOMING_HTTP_STRANGE_PAGE' })
    return true
  }
}

/** Headers of a request for `host` from this machine, and whether it is from here and may read. */
const CASES: readonly (readonly [what: string, headers: Headers, isHere: boolean, mayRead: boolean])[] = [
  ['no host, as HTTP/1.0 has it', {}, true, true],
  ...['localhost', 'LOCALHOST:8000', 'localhost.', '127.0.0.1:8000', '127.8.9.10', '[::1]:8000'].map(
    host => [host, { host }, true, true] as const,
  ),
  ['the name of --host', { host: 'Router.Internal:8000' }, true, true],
  ['the name of the machine', { host: 'gpu-7:8000' }, false, true],
  ['a name of --host-name', { host: 'chat.example.org' }, false, true],
  ['an address of this machine', { host: '10.0.0.9:8000' }, false, true],
  ...[
    'evil.example:8000',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'evil.example@localhost',
    'localhost/evil',
    'localhost#evil',
    'localhost\\evil',
    'router.internal.evil.example',
    '',
    ' ',
    '[::1].evil.example',
  ].map(host => [`host ${JSON.stringify(host)}`, { host }, false, false] as const),
  ['two hosts', { host: ['localhost', 'localhost'] }, false, false],
  ['a page of its own', { host: 'localhost:8000', origin: 'http://localhost:8000' }, true, true],
  ['its own page', { host: 'localhost:8000', referer: 'http://localhost:8000/x' }, true, true],
  ['fetch of Node', { host: 'localhost:1', 'accept-language': '*', 'sec-fetch-mode': 'cors' }, true, true],
  [
    'typed by a person',
    { host: 'localhost:1', 'sec-fetch-site': 'none', 'user-agent': 'Mozilla/5' },
    true,
    true,
  ],
  ['a rebound page', { host: 'evil.example:8000', origin: 'http://evil.example:8000' }, false, false],
  ['another port', { host: 'localhost:8000', origin: 'http://localhost:3000' }, false, false],
  ['a hidden origin', { host: 'localhost:8000', origin: 'null' }, false, false],
  ['an origin that is a text', { host: 'localhost:8000', origin: 'localhost:8000' }, false, false],
  ['two origins', { host: 'localhost', origin: ['http://localhost', 'http://evil'] }, false, false],
  ['another page', { host: 'localhost:8000', referer: 'http://evil.example/' }, false, false],
  ['of another site', { host: 'localhost:8000', 'sec-fetch-site': 'cross-site' }, false, false],
  ['of a sister site', { host: 'localhost:8000', 'sec-fetch-site': 'same-site' }, false, false],
  ...[
    'forwarded',
    'via',
    'x-forwarded-for',
    'x-forwarded-host',
    'x-forwarded-proto',
    'x-forwarded-port',
    'x-real-ip',
    'cf-connecting-ip',
    'cf-ray',
    'true-client-ip',
    'x-client-ip',
    'x-cluster-client-ip',
    'x-envoy-external-address',
    'x-envoy-original-path',
    'fly-client-ip',
    'fastly-client-ip',
  ].map(name => [`a proxy: ${name}`, { host: 'localhost:8000', [name]: '1' }, false, true] as const),
]

t.test('a caller on this machine is known by its host name and by whom it speaks for', async t => {
  for (const [what, headers, isHere, mayRead] of CASES) {
    t.equal(isFromHere({ headers, peerAddress: HERE }, names), isHere, `${what}: is from here`)
    t.equal(isFromHere({ headers, peerAddress: ELSEWHERE }, names), false, `${what}: from elsewhere`)
    t.equal(!isStrange(headers, HERE), mayRead, `${what}: may read`)
  }
  for (const peerAddress of ['::1', '::ffff:127.0.0.1', '127.3.3.3'])
    t.ok(isFromHere({ headers: {}, peerAddress }, names), peerAddress)
  for (const peerAddress of ['', '127.0.0.1.example', '::ffff:10.0.0.7', '1127.0.0.1'])
    t.notOk(isFromHere({ headers: {}, peerAddress }, names), peerAddress)
})

t.test('a program on another machine may use any name, a browser may not', async t => {
  const host = 'router.cluster.local:8000'
  for (const headers of [
    { host },
    { host, 'user-agent': 'curl/8' },
    { host, 'user-agent': 'node', 'accept-language': '*', 'sec-fetch-mode': 'cors' },
    { host, via: '1.1 mesh', 'x-forwarded-for': '10.0.0.1' },
  ])
    t.notOk(isStrange(headers, ELSEWHERE), JSON.stringify(headers))
  for (const mark of [
    { 'user-agent': 'Mozilla/5.0 (X11)' },
    { 'accept-language': 'de-DE,de;q=0.9' },
    { 'sec-fetch-site': 'same-origin' },
    { origin: `http://${host}` },
    { referer: `http://${host}/` },
  ]) {
    t.ok(isStrange({ host, ...mark }, ELSEWHERE), JSON.stringify(mark))
    t.notOk(isStrange({ host: '10.0.0.9:8000', ...mark, ...onlyOwn(mark) }, ELSEWHERE), 'by its address')
  }
})

/** The mark as a page that was opened by the address has it. */
function onlyOwn(mark: object): Headers {
  const site = 'http://10.0.0.9:8000/'
  return 'origin' in mark ? { origin: site } : 'referer' in mark ? { referer: site } : {}
}

t.test('the refusal says how a right name is made known, and repeats little', async t => {
  const headers = { host: `${'e'.repeat(100_000)}:8000` }
  try {
    assertNoStrangePage({ headers, peerAddress: HERE, method: 'GET', path: '/dump' }, names)
    t.fail('it is refused')
  } catch (thrown) {
    t.match((thrown as Error).message, /^cannot GET \/dump for this caller: .*--host-name e{100}…;/)
    t.ok((thrown as Error).message.length < 400)
  }
})
