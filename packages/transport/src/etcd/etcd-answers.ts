/**
 * What etcd's JSON gateway answers. Whatever it is, it is read: what is missing or of another type counts
 * as not there.
 */

import { Buffer } from 'node:buffer'
import { parseJson } from '@homing/base'

type Fields = Readonly<Record<string, unknown>>

export interface EtcdKeyValue {
  readonly key: string
  /** It need be no text. */
  readonly keyBytes: Uint8Array
  readonly value: Uint8Array
  /** Digits; '0': not known. */
  readonly createRevision: string
  readonly lease: string
}

export interface EtcdAnswer {
  readonly fields: Fields
  readonly keyValues: readonly EtcdKeyValue[]
  /** Of the cluster; digits, '0': not known. */
  readonly revision: string
  /** What it says of a failure; '': nothing. */
  readonly error: string
}

export interface EtcdWatchLine {
  /** Nothing comes behind it. */
  readonly isOver: boolean
  /** `value` undefined: the key is gone. */
  readonly changes: readonly { readonly key: string; readonly value: Uint8Array | undefined }[]
}

export function readEtcdAnswer(body: Uint8Array): EtcdAnswer {
  const fields = fieldsOf(jsonOf(Buffer.from(body).toString()))
  return {
    fields,
    keyValues: listOf(fields['kvs']).map(keyValueOf),
    revision: digitsOf(fieldsOf(fields['header'])['revision']),
    error: textOf(fields['error']) || textOf(fields['message']),
  }
}

/** One line of a watch. */
export function readEtcdWatchLine(line: string): EtcdWatchLine {
  const { result } = fieldsOf(jsonOf(line))
  const { canceled, compact_revision: compacted, events } = fieldsOf(result)
  const isOver = typeof result !== 'object' || canceled === true || compacted !== undefined
  const changes = listOf(events).map(event => {
    const { type, kv } = fieldsOf(event)
    const { key, value } = keyValueOf(kv)
    return { key, value: type === 'DELETE' ? undefined : value }
  })
  return { isOver, changes: isOver ? [] : changes }
}

/** The 'result' of an answer that is one of a stream. */
export function resultOf({ fields }: EtcdAnswer): Fields {
  return fieldsOf(fields['result'])
}

function keyValueOf(value: unknown): EtcdKeyValue {
  const fields = fieldsOf(value)
  const keyBytes = bytesOf(fields['key'])
  return {
    key: keyBytes.toString(),
    keyBytes,
    value: bytesOf(fields['value']),
    createRevision: digitsOf(fields['create_revision']),
    lease: digitsOf(fields['lease']),
  }
}

function jsonOf(text: string): unknown {
  try {
    return parseJson(text)
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {}
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function digitsOf(value: unknown): string {
  return typeof value === 'string' && /^\d{1,20}$/.test(value) ? value : '0'
}

function bytesOf(value: unknown): Buffer {
  return Buffer.from(textOf(value), 'base64')
}
