import { CodedError, shownText } from '@homing/base'

/** The route changes the router, and the caller is not on this machine and has no key. */
export class AdminForbiddenError extends CodedError {
  readonly code = 'HOMING_CONSOLE_FORBIDDEN'

  constructor(method: string, path: string, hasKey: boolean) {
    const remedy = hasKey
      ? 'send the key of --admin-key-file as "authorization: Bearer KEY"'
      : 'start the router with --admin-key-file, or call it from its own machine without a proxy'
    const shown = { method: shownText(method), path: shownText(path) }
    super(`cannot ${shown.method} ${shown.path} for this caller: ${remedy}`, shown)
  }
}

/** With --admin-keys-file: no key is shown. */
export class AdminKeyMissingError extends CodedError {
  readonly code = 'HOMING_CONSOLE_KEY_MISSING'

  constructor(method: string, path: string) {
    const shown = { method: shownText(method), path: shownText(path) }
    super(
      `cannot ${shown.method} ${shown.path} without a key: send the key of an entry of --admin-keys-file as "authorization: Bearer KEY"`,
      shown,
    )
  }
}

/** With --admin-keys-file: the key is in no entry. */
export class AdminKeyUnknownError extends CodedError {
  readonly code = 'HOMING_CONSOLE_KEY_UNKNOWN'

  constructor(method: string, path: string) {
    const shown = { method: shownText(method), path: shownText(path) }
    super(
      `cannot ${shown.method} ${shown.path} with this key: no entry of --admin-keys-file has it; send the key of one that is there`,
      shown,
    )
  }
}

/** With --admin-keys-file: the role of the key does not allow it. */
export class AdminRoleError extends CodedError {
  readonly code = 'HOMING_CONSOLE_ROLE'

  constructor(method: string, path: string, name: string, role: string) {
    const shown = { method: shownText(method), path: shownText(path) }
    super(
      `cannot ${shown.method} ${shown.path} with the key of ${name}: its role is ${role}, and this is for an operator (--admin-keys-file)`,
      { ...shown, name, role },
    )
  }
}

/** The live part of the page, for a caller that may not see it. */
export class PageForbiddenError extends CodedError {
  readonly code = 'HOMING_CONSOLE_PAGE_FORBIDDEN'

  constructor(needsKey: boolean) {
    const remedy = needsKey
      ? 'send the key of --admin-key-file as "authorization: Bearer KEY"'
      : "open it on the router's own machine as localhost, or start the router with --admin-key-file or --page open"
    super(`cannot show the page to this caller: ${remedy}`, { needsKey: String(needsKey) })
  }
}

/** The limit of diagnoses at one time is reached. */
export class DiagnosesBusyError extends CodedError {
  readonly code = 'HOMING_CONSOLE_DIAGNOSES_BUSY'

  constructor(worker: string) {
    const shown = shownText(worker)
    super(`cannot diagnose the worker ${shown} now: as many as may be are being looked at; ask again`, {
      worker: shown,
    })
  }
}

/** A dump was ended before its last part. */
export class DumpCutError extends CodedError {
  readonly code = 'HOMING_CONSOLE_DUMP_CUT'

  constructor(why: string) {
    super(`cannot go on with the dump: ${why}`)
  }
}

/** As many `POST /route` are answered as may be, of one client or of all. */
export class RoutesBusyError extends CodedError {
  readonly code = 'HOMING_CONSOLE_ROUTES_BUSY'

  constructor(max: number, perClientMax: number) {
    super(
      `cannot say now where the request would go: POST /route is answered for ${max} requests at one time, ${perClientMax} of them of one client, because it may make an engine tokenize; ask again in a second`,
      { max, perClientMax, retryAfterSeconds: 1 },
    )
  }
}

/** The limit of open operator requests, or of bytes of their bodies, is reached. */
export class ConsoleBusyError extends CodedError {
  readonly code = 'HOMING_CONSOLE_BUSY'

  constructor(what: string, max: number) {
    super(`cannot answer another operator request: ${max} ${what}`, { max })
  }
}
