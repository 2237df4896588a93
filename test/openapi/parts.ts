/** What both documents are made with. */

import type { Samples } from './samples.ts'

/** The text below a heading of a page, up to the next of its rank. */
export function sectionOf(page: string, heading: string): string {
  const [, text] = page.split(`\n## ${heading}\n`)
  if (text === undefined) throw new Error(`there is no section "${heading}"`)
  return text.split(/^## /m)[0]!
}

/** Without links and code marks. */
export function plain(markdown: string): string {
  return markdown
    .replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1')
    .replaceAll('`', '')
    .trim()
}

/** 'postRegisterPeer' of POST /register_peer. */
export function operationId(method: string, path: string): string {
  const words = path.split(/[/:_]+/).filter(word => word !== '' && word !== 'v1')
  return [method.toLowerCase(), ...(words.length === 0 ? ['overview'] : words)]
    .map((word, at) => (at === 0 ? word : word[0]!.toUpperCase() + word.slice(1)))
    .join('')
}

export type Collect = (route: string, status: number, answer: unknown) => void

/** Answers by 'GET /workers → 200'. */
export async function sampled(collectSamples: (collect: Collect) => Promise<void>): Promise<Samples> {
  const samples: Samples = new Map()
  await collectSamples((route, status, answer) => {
    const key = `${route} → ${status}`
    samples.set(key, [...(samples.get(key) ?? []), answer])
  })
  return samples
}
