/** A log that keeps its lines instead of writing them: for tests. */

import type { Log, LogLevel } from './log.ts'
import type { LogFields } from './log-text.ts'

export interface LogLine {
  readonly level: LogLevel
  /** With those of the logs that it is a child of. */
  readonly fields: LogFields
  readonly text: string
}

export interface RecordingLog extends Log {
  /** Its own and those of its children, as they came. */
  readonly lines: readonly LogLine[]
}

/** Every level is enabled. */
export function recordingLog(): RecordingLog {
  const lines: LogLine[] = []
  const make = (inherited: LogFields): RecordingLog => {
    const at = (level: LogLevel) => (fields: LogFields, text: string) =>
      void lines.push({ level, fields: { ...inherited, ...fields }, text })
    return {
      lines,
      trace: at('trace'),
      debug: at('debug'),
      info: at('info'),
      warn: at('warn'),
      error: at('error'),
      child: fields => make({ ...inherited, ...fields }),
      isLevelEnabled: () => true,
    }
  }
  return make({})
}
