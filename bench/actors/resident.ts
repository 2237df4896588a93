/**
 * Resident memory of this process, for slopes. Linux takes back pages of mapped files when others need
 * memory, which looks like a leak that heals: there, only memory that the process made counts.
 */

import { existsSync, readFileSync } from 'node:fs'
import process from 'node:process'

const STATUS = '/proc/self/status'
const hasStatus = existsSync(STATUS)

/** In kB. */
export function residentKb(): number {
  if (!hasStatus) return process.memoryUsage.rss() / 1024
  const anonymous = /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(STATUS, 'utf8'))
  return anonymous === null ? process.memoryUsage.rss() / 1024 : Number(anonymous[1])
}
