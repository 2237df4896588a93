/**
 * Trace file: requests of a .jsonl or .jsonl.gz file, as a stream that may be larger than memory, or whole.
 *
 * A stream holds one chunk of the file and one line. Each iteration reads the file anew, from its start.
 * Lines are in order of arrival; a timestamp that goes back is refused, unless `anyOrder` says otherwise.
 */

import { createReadStream, readFileSync } from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import { createGunzip, gunzipSync } from 'node:zlib'
import { CodedError } from '@homing/base'
import { MalformedTraceError, parseTraceLine } from './trace-line.ts'
import { TRACE_BLOCK_TOKENS, type TraceRequest } from './trace-request.ts'

/** Longest line, in characters: about four million ids. */
export const TRACE_LINE_MAX = 64 * 1024 * 1024

/** Of a file that is read whole, decompressed: a text cannot be longer. A stream has no such bound. */
const WHOLE_BYTES_MAX = 2 ** 29 - 24

export interface TraceFileOptions {
  /** Tokens that an id stands for; default 512. */
  readonly blockTokens?: number
  /** Lines need not be in order of arrival. */
  readonly anyOrder?: boolean
  /**
   * What a file that was cut means, within a line or within its compressed form: default an error, else its
   * end.
   */
  readonly cut?: 'error' | 'end'
}

/** A trace file cannot be opened, decompressed or read to its end. */
export class UnreadableTraceError extends CodedError {
  readonly code = 'HOMING_TRACE_UNREADABLE'

  constructor(path: string, reason: string, cause?: unknown) {
    super(`cannot read trace ${path}: ${reason}`, { path, reason }, { cause })
  }
}

/** A line of a text file, from 1. */
export interface NumberedLine {
  readonly line: number
  readonly text: string
  /** False for the last line of a file that does not end with a line feed: it may have been cut. */
  readonly isComplete: boolean
}

/** The requests of a file as a stream. Iterating throws MalformedTraceError and UnreadableTraceError. */
export function openTrace(path: string, options: TraceFileOptions = {}): AsyncIterable<TraceRequest> {
  return { [Symbol.asyncIterator]: () => requestsOf(path, options) }
}

/** The requests of a file, whole. Throws MalformedTraceError and UnreadableTraceError. */
export function readTrace(path: string, options: TraceFileOptions = {}): TraceRequest[] {
  const requests: TraceRequest[] = []
  const parse = lineParser(path, options)
  const texts = wholeText(path).split('\n')
  for (const [i, text] of texts.entries()) {
    const request = parse({ line: i + 1, text, isComplete: i < texts.length - 1 })
    if (request !== undefined) requests.push(request)
  }
  return requests
}

/** The lines of a .jsonl or .jsonl.gz file as a stream. Iterating throws UnreadableTraceError. */
export async function* readLines(path: string, cut: 'error' | 'end' = 'error'): AsyncGenerator<NumberedLine> {
  const file = createReadStream(path, { highWaterMark: 256 * 1024 })
  const gunzip = path.endsWith('.gz') ? createGunzip({ chunkSize: 256 * 1024 }) : undefined
  // An error of the file does not reach the end of a pipe by itself.
  if (gunzip !== undefined) file.once('error', error => gunzip.destroy(error))
  const bytes = gunzip === undefined ? file : file.pipe(gunzip)
  const decoder = new StringDecoder('utf8')
  let rest = ''
  let line = 0
  try {
    for await (const chunk of bytes) {
      const parts = (rest + decoder.write(chunk as Buffer)).split('\n')
      rest = parts.pop()!
      for (const text of parts) yield { line: ++line, text, isComplete: true }
      if (rest.length > TRACE_LINE_MAX) {
        throw new UnreadableTraceError(path, `line ${line + 1} has more than ${TRACE_LINE_MAX} characters`)
      }
    }
  } catch (error) {
    if (error instanceof UnreadableTraceError) throw error
    if (!isCut(error) || cut === 'error') throw unreadable(path, error, line)
  } finally {
    file.destroy()
    gunzip?.destroy()
  }
  rest += decoder.end()
  if (rest !== '') yield { line: ++line, text: rest, isComplete: false }
}

async function* requestsOf(path: string, options: TraceFileOptions): AsyncGenerator<TraceRequest> {
  const parse = lineParser(path, options)
  for await (const line of readLines(path, options.cut)) {
    const request = parse(line)
    if (request !== undefined) yield request
  }
}

function lineParser(
  path: string,
  options: TraceFileOptions,
): (line: NumberedLine) => TraceRequest | undefined {
  const blockTokens = options.blockTokens ?? TRACE_BLOCK_TOKENS
  let latestMs = 0
  return ({ line, text, isComplete }) => {
    if (text.trim() === '') return undefined
    let request: TraceRequest
    try {
      request = parseTraceLine(path, line, text, blockTokens)
    } catch (error) {
      if (!isComplete && options.cut === 'end' && error instanceof MalformedTraceError) return undefined
      throw error
    }
    const { timestampMs } = request
    if (timestampMs < latestMs && options.anyOrder !== true) {
      const reason = `timestamp ${timestampMs} is before ${latestMs}: sort the lines by timestamp`
      throw new MalformedTraceError(path, line, reason)
    }
    latestMs = timestampMs
    return request
  }
}

function wholeText(path: string): string {
  try {
    const bytes = readFileSync(path)
    return (path.endsWith('.gz') ? gunzipSync(bytes, { maxOutputLength: WHOLE_BYTES_MAX }) : bytes).toString(
      'utf8',
    )
  } catch (error) {
    throw unreadable(path, error)
  }
}

function unreadable(path: string, error: unknown, linesRead?: number): UnreadableTraceError {
  const after = linesRead === undefined ? '' : `, after line ${linesRead}`
  if (isCut(error)) return new UnreadableTraceError(path, `the compressed file was cut${after}`, error)
  return new UnreadableTraceError(path, error instanceof Error ? error.message : String(error), error)
}

function isCut(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'Z_BUF_ERROR'
}
