/**
 * Log: `log.info({ fields }, 'constant text')`, one JSON line each on standard error. Written by
 * pino, synchronously, so that the last line before a crash is there.
 */

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
  return new LateLog(level, () => {
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
class LateLog implements Log {
  readonly #level: LogLevel
  readonly #levelIndex: number
  readonly #open: () => Log
  #opened: Log | undefined

  constructor(level: LogLevel, open: () => Log) {
    this.#level = level
    this.#levelIndex = LEVELS.indexOf(level)
    this.#open = open
  }

  trace(fields: LogFields, text: string): void {
    this.#write('trace', fields, text)
  }

  debug(fields: LogFields, text: string): void {
    this.#write('debug', fields, text)
  }

  info(fields: LogFields, text: string): void {
    this.#write('info', fields, text)
  }

  warn(fields: LogFields, text: string): void {
    this.#write('warn', fields, text)
  }

  error(fields: LogFields, text: string): void {
    this.#write('error', fields, text)
  }

  child(fields: LogFields): Log {
    return new LateLog(this.#level, () => this.#pino().child(fields))
  }

  isLevelEnabled(level: LogLevel): boolean {
    return level !== 'silent' && LEVELS.indexOf(level) >= this.#levelIndex
  }

  #write(level: Exclude<LogLevel, 'silent'>, fields: LogFields, text: string): void {
    if (this.isLevelEnabled(level)) this.#pino()[level](fields, text)
  }

  #pino(): Log {
    this.#opened ??= this.#open()
    return this.#opened
  }
}

/** A log that writes nothing. */
export const silentLog: Log = createLog('silent')
