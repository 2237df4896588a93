/**
 * Log: `log.info({ fields }, 'constant text')`, one line each on standard error: plain text where that is a
 * terminal, else JSON. Written by pino, synchronously, so that the last line before a crash is not lost. If
 * pino cannot be loaded, because the process cannot open another file, lines are written without it: a log
 * line must never fail its caller.
 */

import { writeSync } from 'node:fs'
import { createRequire } from 'node:module'
import process from 'node:process'
import { isatty } from 'node:tty'
import type pino from 'pino'
import { type LogFields, logText } from './log-text.ts'
import { shownJson } from './shown-json.ts'

const require = createRequire(import.meta.url)

/** How much is logged, from all to nothing. */
export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const

export type LogLevel = (typeof LOG_LEVELS)[number]

/** `auto`: text where standard error is a terminal, else JSON. */
export type LogFormat = 'auto' | 'text' | 'json'

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

const STDERR = 2

/** A log on standard error. */
export function createLog(level: LogLevel = 'info', fields: LogFields = {}, format: LogFormat = 'auto'): Log {
  const toText = textOf(format)
  return lateLog(level, fields, toText, () => {
    const open = require('pino') as typeof pino
    const sink = open.destination({ fd: STDERR, sync: true })
    return open(
      {
        level,
        base: { ...fields },
        timestamp: open.stdTimeFunctions.isoTime,
        formatters: { level: label => ({ level: label }) },
      },
      {
        write: line =>
          void sink.write(
            toText === undefined ? shownJson(line) : `${toText(JSON.parse(line) as LogFields)}\n`,
          ),
      },
    )
  })
}

/**
 * How a line is shown; undefined: as JSON. Terminals know colours, and their users may want none
 * (no-color.org).
 */
function textOf(format: LogFormat): ((line: LogFields) => string) | undefined {
  if (format === 'json') return undefined
  const isTerminal = isatty(STDERR)
  if (format === 'auto' && !isTerminal) return undefined
  const { NO_COLOR = '', TERM } = process.env
  const isColoured = isTerminal && NO_COLOR === '' && TERM !== 'dumb'
  return line => logText(line, isColoured)
}

/**
 * Loads pino with its first line: that takes 5 ms or more, which a thread that starts for one that died has
 * better use for.
 */
function lateLog(
  level: LogLevel,
  fields: LogFields,
  toText: ((line: LogFields) => string) | undefined,
  open: () => Log,
): Log {
  const threshold = LOG_LEVELS.indexOf(level)
  let opened: Log | undefined
  const tryOpen = (): Log | undefined => {
    try {
      opened ??= open()
    } catch {
      // Tried again with the next line.
    }
    return opened
  }
  const isLevelEnabled = (of: LogLevel): boolean => of !== 'silent' && LOG_LEVELS.indexOf(of) >= threshold
  const writer = (of: Exclude<LogLevel, 'silent'>): Log['info'] => {
    if (!isLevelEnabled(of)) return () => {}
    return (own, text) => {
      const log = tryOpen()
      if (log === undefined) writeBare({ level: of, ...fields, ...own, msg: text }, toText)
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
      return lateLog(level, { ...fields, ...own }, toText, () => parent().child(own))
    },
    isLevelEnabled,
  }
}

/** Without a time, for which pino has the clock. */
function writeBare(
  line: LogFields,
  toText: (line: LogFields) => string = line => shownJson(JSON.stringify(line)),
): void {
  try {
    writeSync(STDERR, `${toText(line)}\n`)
  } catch {
    // Standard error is gone: there is no place left to report to.
  }
}

/** A log that writes nothing. */
export const silentLog: Log = createLog('silent')
