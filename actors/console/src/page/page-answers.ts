/** The answers of the page's own routes: the page, its files, and the head of its stream. */

import { type HttpAnswer, NotFoundError } from '@homing/http'
import { PageFiles } from '@homing/page'
import { type Access, assertMayLook, assertMayRead } from '../admin-access.ts'
import type { ConsoleArgs } from '../console-args.ts'
import type { OperatorRequest } from '../messages.ts'

export const LIVE_PATH = 'live'
/** An answer of this type starts a stream: the owner of the exchange continues it. */
export const STREAM_TYPE = 'text/event-stream; charset=utf-8'
const STREAM_HEADERS = {
  'content-type': STREAM_TYPE,
  'cache-control': 'no-store',
  // A proxy that buffers answers would never pass this one on.
  'x-accel-buffering': 'no',
}
const NOTHING = new Uint8Array(0)

export class PageAnswers {
  readonly #args: ConsoleArgs
  readonly #access: Access
  #files: Promise<PageFiles> | undefined

  constructor(args: ConsoleArgs, access: Access) {
    this.#args = args
    this.#access = access
  }

  /** A browser asks for a page, a program for JSON. */
  wantsPage({ headers }: OperatorRequest): boolean {
    return this.#args.page !== 'off' && String(headers['accept'] ?? '').includes('text/html')
  }

  async page(request: OperatorRequest): Promise<HttpAnswer> {
    const files = await this.#read()
    return fileAnswer(request, files.html, {
      'content-security-policy': files.policy,
      vary: 'accept, accept-encoding',
    })
  }

  /** `path`: behind `/page/`. Throws NotFoundError, PageForbiddenError, StrangePageError. */
  async file(request: OperatorRequest, path: string): Promise<HttpAnswer> {
    const { page } = this.#args
    if (page === 'off') throw new NotFoundError('page', path, 'the page is switched off (--page off)')
    if (path === LIVE_PATH) {
      if (page === 'local') assertMayLook(request, this.#access)
      else assertMayRead(request, this.#access)
      return { status: 200, headers: STREAM_HEADERS, body: NOTHING }
    }
    const file = (await this.#read()).get(path)
    if (file === undefined) throw new NotFoundError('file of the page', path, 'GET / has the page')
    return fileAnswer(request, file, { vary: 'accept-encoding' })
  }

  #read(): Promise<PageFiles> {
    this.#files ??= PageFiles.read()
    return this.#files
  }
}

type PageFile = PageFiles['html']

function fileAnswer(
  { headers }: OperatorRequest,
  { type, bytes, gzip, etag }: PageFile,
  more: Readonly<Record<string, string>>,
): HttpAnswer {
  const own = {
    ...more,
    etag,
    // Asked for each time, answered with 304: a new version of the router is seen at once.
    'cache-control': 'no-cache',
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
  }
  const known = String(headers['if-none-match'] ?? '')
  if (known.includes(etag)) return { status: 304, headers: own, body: NOTHING }
  const isCompressed = String(headers['accept-encoding'] ?? '').includes('gzip')
  return {
    status: 200,
    headers: { ...own, 'content-type': type, ...(isCompressed && { 'content-encoding': 'gzip' }) },
    body: isCompressed ? gzip : bytes,
  }
}
