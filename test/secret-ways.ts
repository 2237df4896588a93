/** Ways in which people write a key where a worker, an endpoint or an address belongs. */

/** In the form of a key of a well-known service. */
export const MARKER = 'sk-proj-M4rk3rM4rk3rM4rk3r99'
/** A part of it that no message may have, however it is cut or written. */
export const TRACE = /M4rk3r|m4rk3r/i

/** Each with the marker in it. */
export const SECRET_WAYS: readonly string[] = [
  MARKER,
  `key=${MARKER}`,
  `api_key: ${MARKER}`,
  `Bearer ${MARKER}`,
  `Authorization: Bearer ${MARKER}`,
  `token ${MARKER}`,
  `user:${MARKER}@127.0.0.1:1`,
  `${MARKER}@127.0.0.1:1`,
  `127.0.0.1:1 ${MARKER}`,
  `http://user:${MARKER}@127.0.0.1:1`,
  `http://${MARKER}@127.0.0.1:1`,
  `http://${MARKER}:1`,
  `http://${MARKER}.example:1`,
  `http://127.0.0.1:1/${MARKER}`,
  `http://127.0.0.1:1/engines/${MARKER}/v1`,
  `http://127.0.0.1:1#${MARKER}`,
  `http://127.0.0.1:1?${MARKER}`,
  `http://127.0.0.1:1?${MARKER}=1`,
  ...[
    'api_key',
    'apikey',
    'token',
    'key',
    'password',
    'access_token',
    'secret',
    'sig',
    'key_env',
    'key_file',
    'events',
    'replay',
    'events_host',
    'ranks',
    'block_size',
    'nats',
    'requests',
    'topic',
    'taints',
    'id',
  ].map(name => `http://127.0.0.1:1?${name}=${MARKER}`),
  `http://127.0.0.1:1?key_file=/etc/keys/${MARKER}`,
  `http://127.0.0.1:1?key_env=${MARKER.replaceAll('-', '_')}`,
  `http://127.0.0.1:1?key_file=a&key_env=${MARKER}`,
  `${MARKER}://127.0.0.1:1`,
  `nats://user:${MARKER}@127.0.0.1:4222`,
  `tcp://user:${MARKER}@127.0.0.1:5557`,
  `tcp://127.0.0.1:5557/${MARKER}`,
]
