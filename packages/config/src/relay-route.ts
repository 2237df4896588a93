/**
 * One value of `--relay-route`: a further route of the engines that the router passes on.
 *
 *   '/v1/files'   'GET /v1/files/*'   'POST /v1/load_lora_adapter'
 *
 * Without a method, every method is passed on. `*` stands for one segment of the path. Routes that the router
 * serves itself cannot be given: it would not pass them on.
 */

export interface RelayRoute {
  /** Undefined: any. */
  readonly method: string | undefined
  /** '*' stands for one segment. */
  readonly path: string
}

const FORM = /^(?:([A-Z]+) +)?(\/\S*)$/
/** Percent signs, `.` and `..` would make two texts of one path. */
const SEGMENT = /^(?!\.{1,2}$)(?:[A-Za-z0-9._~-]+|\*)$/
/** What the gateway serves with all below it, and by itself; a test compares them with its table. */
const OWN_TREES = [
  ...['route', 'decisions', 'queue', 'replicas', 'busy_threshold', 'workers', 'what_if', 'actors', 'dump'],
  ...['health', 'ready', 'metrics', 'page', 'v1/models', 'v1/router'],
]
const OWN_PATHS = ['v1/chat/completions', 'v1/completions', 'v1/messages', 'v1/responses']
const OWN_ROUTES = new RegExp(`^/(?:(?:${OWN_TREES.join('|')})(?:/.*)?|${OWN_PATHS.join('|')})?$`)

/** Why it cannot be used; undefined when it can. */
export function relayRouteFault(text: string): string | undefined {
  const match = FORM.exec(text)
  if (match === null) return "is no route; use '/path' or 'POST /path', with * for one segment"
  const path = match[2]!
  if (OWN_ROUTES.test(path)) return 'is a route of the router itself'
  const wrong = path
    .slice(1)
    .split('/')
    .find(segment => !SEGMENT.test(segment))
  if (wrong === undefined) return undefined
  return `has the segment '${wrong}'; use letters, digits, '-', '_', '.', '~', or a whole '*'`
}

/** `text` has been checked. */
export function readRelayRoute(text: string): RelayRoute {
  const [, method, path] = FORM.exec(text)!
  return { method, path: path! }
}
