/**
 * Open text: what a message may repeat of a text in which people put secrets: URLs, endpoints, lines of
 * files, words of a command line.
 *
 *   http://user:pw@host:8001/a?events=5557&api_key=…   ─▶   http://***@host:8001/a?events=5557&api_key
 *   sk-live-…, Bearer …, token=…                       ─▶   (not shown: it may be a secret)
 *   eight thousand                                     ─▶   eight thousand
 *
 * Names of members are shown, values are not, but for short numbers such as ports. A name is shown only if
 * it looks like one: a key that was written as `?sk-…` is a name, too.
 */

import { shownText } from './shown-text.ts'

/** Stands for a text that is not shown. */
export const NOT_SHOWN = '(not shown: it may be a secret)'

/** Keys of known services: a prefix, perhaps words, and a long run of letters and digits. */
const KEY_PREFIX = '(?:sk|rk|gsk|hf|xai|nvapi|ghp|gho|glpat|akia)'
const SERVICE_KEY = new RegExp(
  `(?:^|[^A-Za-z0-9])${KEY_PREFIX}[-_]?(?:[A-Za-z0-9]{2,8}[-_]){0,3}[A-Za-z0-9_]{16,}|eyJ[A-Za-z0-9_-]{16,}`,
  'i',
)
/** Words that stand beside a secret, and a user name in a URL. */
const SECRET_WORD = /key|token|secret|passw|pwd|bearer|basic |credential|authorization|@|\b(?:sk|hf|gsk)[-_]/i
/** Letters and digits in one run: no word of people. */
const LONG_RUN = /(?=[A-Za-z0-9+/=_-]*\d)(?=[A-Za-z0-9+/=_-]*[A-Za-z])[A-Za-z0-9+/=_-]{16,}/
const NAME = /^[A-Za-z][A-Za-z_-]{0,31}$/
const SCHEME = /^([a-z][a-z+.-]{0,11}):\/\//i
/** Words, perhaps with a number: /engines/a/v1. */
const PLAIN_PATH = /^(?:\/[A-Za-z]{1,20}\d{0,2}){0,4}\/?$/
const SHOWN_MEMBERS_MAX = 16

/** A longer text is not looked through, which takes the square of its length, and not shown. */
const READ_CHARACTERS_MAX = 1000

/** It has the form of an API key of a known service, within its first 1,000 characters. */
export function looksLikeKey(text: string): boolean {
  return SERVICE_KEY.test(text.slice(0, READ_CHARACTERS_MAX))
}

/** The name of a member; digits are in no name of ours, and in most keys. */
export function openName(name: string): string {
  return NAME.test(name) && !/^(?:sk|hf|gsk)[-_]/i.test(name) ? name : NOT_SHOWN
}

/** What may be shown of a URL or any other text. */
export function openText(text: string): string {
  const trimmed = text.trim()
  if (trimmed.length > READ_CHARACTERS_MAX) return NOT_SHOWN
  if (SCHEME.test(trimmed)) return openUrl(trimmed) ?? NOT_SHOWN
  return SECRET_WORD.test(trimmed) || LONG_RUN.test(trimmed) ? NOT_SHOWN : shownText(text)
}

/** Scheme, host and port, and the names of what follows; undefined: it is no URL. */
export function openUrl(text: string): string | undefined {
  if (text.length > READ_CHARACTERS_MAX) return undefined
  const url = URL.parse(text)
  if (url === null || !SCHEME.test(text)) return undefined
  // Of a scheme that the URL standard does not know, the host is a text like any other.
  const host = looksLikeKey(url.host) || url.host.includes('%') ? '…' : shownText(url.host)
  const path = PLAIN_PATH.test(url.pathname) ? url.pathname.replace(/\/$/, '') : '/…'
  const user = url.username === '' && url.password === '' ? '' : '***@'
  const members = [...url.searchParams]
  const shown = members.slice(0, SHOWN_MEMBERS_MAX).map(openMember).join('&')
  const more = members.length > SHOWN_MEMBERS_MAX ? '&…' : ''
  const query = members.length === 0 ? '' : `?${shown}${more}`
  return `${url.protocol}//${user}${host}${path}${query}${url.hash === '' ? '' : '#…'}`
}

function openMember([name, value]: readonly [name: string, value: string]): string {
  const shown = openName(name)
  return /^\d{1,6}$/.test(value) && shown === name ? `${name}=${value}` : shown
}
