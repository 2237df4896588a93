/**
 * Log: `log.info({ fields }, 'constant text')`, one JSON line each on standard error. Written by
 * pino, synchronously, so that the last line before a crash is there.
 */

import pino from 'pino'

export type LogFields = Readonly<Record<string, unknown>>
export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent'

export interface Log {
  trace(fields: LogFields, text: string): void
  debug(fields: LogFields, text: string): void
  info(fields: LogFields, text: string): void
  warn(fields: LogFields, text: string): void
  error(fields: LogFields, text: string): void
  /** A log whose lines all carry `fields` too. */
  child(fields: LogFields): Log
  /** True when lines of `level` are written; lets hot paths skip building fields. */
  isLevelEnabled(level: LogLevel): boolean
}

/** A log on standard error. */
export function createLog(level: LogLevel = 'info', fields: LogFields = {}): Log {
  return pino(
    {
      level,
      base: { ...fields },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: label => ({ level: label }) },
    },
    pino.destination({ fd: 2, sync: true }),
  )
}

/** A log that writes nothing. */
export const silentLog: Log = createLog('silent')
