/** Settings of every command that uses etcd. */

const ETCD_PORT = 2379

/** A command adds its own group, variable and help. */
export const etcdSettings = {
  servers: {
    key: 'etcdServers',
    name: 'etcd',
    kind: 'list',
    placeholder: 'URL',
    separator: 'comma or space',
    unsetMeans: `http://127.0.0.1:${ETCD_PORT}, where etcd is used`,
    // Not the function itself: declarations of other packages would have to name it.
    check: (text: string): string | undefined => faultOfEtcdServer(text),
  },
  discovery: {
    key: 'discovery',
    name: 'discovery-backend',
    kind: 'choice',
    default: 'nats',
  },
} as const

/** Behind what an option says of its use. */
export const ETCD_HELP =
  'address of an etcd server, such as http://10.0.0.1:2379; give it once for each server of a cluster. It is asked over its JSON gateway, which it has unless it was started without one. Users and passwords are not supported.'

/** 'http://host:port' of each server, with etcd's port where none is given; of none: that on this machine. */
export function etcdServersOf(urls: readonly string[]): readonly string[] {
  return (urls.length === 0 ? ['http://127.0.0.1'] : urls).map(url => {
    const bare = url.replace(/\/$/, '')
    return /:\d+$/.test(bare) ? bare : `${bare}:${ETCD_PORT}`
  })
}

function faultOfEtcdServer(text: string): string | undefined {
  if (text.includes('@')) return 'leave user and password out of it: they are not supported'
  return /^https?:\/\/(?:\[[0-9a-fA-F:.]+\]|[^\s/:?#[\]]+)(?::\d{1,5})?\/?$/.test(text)
    ? undefined
    : "is not 'http://host:port'"
}
