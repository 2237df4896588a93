/** One table from error codes to statuses. Bodies are `{"error": sentence, "code": code}`. */

import type { ErrorRecord } from '@homing/base'
import { COMMON_STATUSES } from '@homing/http'

const STATUS_OF_CODE: Readonly<Record<string, number>> = {
  ...COMMON_STATUSES,
  HOMING_INDEX_SERVICE_BAD_REQUEST: 400,
  HOMING_INDEX_SERVICE_NOT_REGISTERED: 404,
  HOMING_INDEX_SERVICE_CONFLICT: 409,
  HOMING_INDEX_SERVICE_FULL: 503,
  HOMING_INDEX_SERVICE_BUSY: 503,
  HOMING_INDEX_SERVICE_STOPPING: 503,
}

/** Codes that are not in the table are internal errors (500). */
export function statusOf({ code }: ErrorRecord): number {
  return STATUS_OF_CODE[code] ?? 500
}
