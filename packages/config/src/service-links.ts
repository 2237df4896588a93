/**
 * Service links: variables that Kubernetes makes of the name of each Service, and Docker of that of a link.
 * Those of a Service `homing` begin with HOMING_, and HOMING_PORT among them is a URL.
 *
 *   homing ─▶ HOMING_PORT=tcp://10.0.0.1:80   HOMING_PORT_80_TCP…
 *             HOMING_SERVICE_HOST             HOMING_SERVICE_PORT…
 */

const LINK_URL = /^(?:tcp|udp|sctp):\/\/(?:[^\s:/[\]]+|\[[0-9a-fA-F:.]+\]|[0-9a-fA-F:.]+):\d+$/
const LINK_SUFFIX =
  /^(?:PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?|SERVICE_HOST|SERVICE_PORT(?:_\w+)?)$/

/** Names of the variables in `env` that are links to Services. */
export function serviceLinks(env: Readonly<Record<string, string | undefined>>): ReadonlySet<string> {
  const names = Object.keys(env)
  const services = names
    .filter(name => name.endsWith('_PORT') && LINK_URL.test(env[name]?.trim() ?? ''))
    .map(name => name.slice(0, -'PORT'.length))
  return new Set(
    services.length === 0
      ? []
      : names.filter(name =>
          services.some(service => name.startsWith(service) && LINK_SUFFIX.test(name.slice(service.length))),
        ),
  )
}
