/** A host as it is written in a URL; a listener on every interface is dialled on this machine. */
export function dialledHost(host: string): string {
  if (host === '0.0.0.0' || host === '') return '127.0.0.1'
  if (host === '::') return '[::1]'
  return host.includes(':') ? `[${host}]` : host
}
