/** One table from error codes to statuses. Bodies are `{"error": sentence, "code": code}`. */

import type { ErrorRecord } from '@homing/base'

const STATUS_OF_CODE: Readonly<Record<string, number>> = {
  HOMING_INDEX_SERVICE_BAD_REQUEST: 400,
  HOMING_TRANSPORT_ENDPOINT: 400,
  HOMING_HTTP_STRANGE_PAGE: 403,
  HOMING_INDEX_SERVICE_NOT_REGISTERED: 404,
  HOMING_HTTP_NO_SUCH_ROUTE: 404,
  HOMING_HTTP_METHOD_NOT_ALLOWED: 405,
  HOMING_TRANSPORT_BODY_TIMEOUT: 408,
  HOMING_TRANSPORT_MALFORMED_HTTP: 400,
  HOMING_INDEX_SERVICE_CONFLICT: 409,
  HOMING_TRANSPORT_BODY_TOO_LARGE: 413,
  HOMING_HTTP_UNSUPPORTED_ENCODING: 415,
  HOMING_HTTP_MALFORMED_ENCODING: 400,
  HOMING_INDEX_SERVICE_FULL: 503,
  HOMING_INDEX_SERVICE_BUSY: 503,
  HOMING_INDEX_SERVICE_STOPPING: 503,
  HOMING_ACTOR_SYSTEM_STOPPED: 503,
  // An indexer is restarting or overloaded: the same request may succeed soon.
  HOMING_ACTOR_ASK_TIMEOUT: 503,
  HOMING_ACTOR_ASK_REFUSED: 503,
  HOMING_ACTOR_TERMINATED: 503,
  HOMING_ACTOR_THREAD_DOWN: 503,
}

/** Codes that are not in the table are internal errors (500). */
export function statusOf({ code }: ErrorRecord): number {
  return STATUS_OF_CODE[code] ?? 500
}
