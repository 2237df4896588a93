/**
 * Log: `log.info({ fields }, 'constant text')`, one JSON line each on standard error. Written by
 * pino, synchronously, so that the last line before a crash is not lost. If pino cannot be loaded, because the process cannot
 * open another file, lines are written without it: a log line must never fail its caller.
 */

import { writeSync } from 'node:fs'
import { createRequire } from 'node:module'
import type pino from 'pino'

const require = createRequire(import.meta.url)

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

const LEVELS: readonly LogLevel[] = ['trace', 'debug', 'info', 'warn', 'error', 'silent']

/** A log on standard error. */
export function createLog(level: LogLevel = 'info', fields: LogFields = {}): Log {
  return lateLog(level, fields, () => {
    const open = require('pino') as typeof pino
    return open(
      {
        level,
        base: { ...fields },
        timestamp: open.stdTimeFunctions.isoTime,
        formatters: { level: label => ({ level: label }) },
      },
      open.destination({ fd: 2, sync: true }),
    )
  })
}

/** Loads pino with its first line: that takes 5 ms or more, which a thread that starts for one that died has better use for. */
function lateLog(level: LogLevel, fields: LogFields, open: () => Log): Log {
  const threshold = LEVELS.indexOf(level)
  let opened: Log | undefined
  const tryOpen = (): Log | undefined => {
    try {
      opened ??= open()
    } catch {
      // Tried again with the next line.
    }
    return opened
  }
  const isLevelEnabled = (of: LogLevel): boolean => of !== 'silent' && LEVELS.indexOf(of) >= threshold
  const writer = (of: Exclude<LogLevel, 'silent'>): Log['info'] => {
    if (!isLevelEnabled(of)) return () => {}
    return (own, text) => {
      const log = tryOpen()
      if (log === undefined) writeBare({ level: of, ...fields, ...own, msg: text })
      else log[of](own, text)
    }
  }
  return {
    trace: writer('trace'),
    debug: writer('debug'),
    info: writer('info'),
    warn: writer('warn'),
    error: writer('error'),
    child: own => {
      const parent = (): Log => {
        opened ??= open()
        return opened
      }
      return lateLog(level, { ...fields, ...own }, () => parent().child(own))
    },
    isLevelEnabled,
  }
}

/** Without a time, for which pino has the clock. */
function writeBare(line: LogFields): void {
  try {
    writeSync(2, `${JSON.stringify(line)}\n`)
  } catch {
    // Nobody is left to tell.
  }
}

/** A log that writes nothing. */
export const silentLog: Log = createLog('silent')
