import { readFileSync } from 'node:fs'

/** The version in package.json; the file lies beside src/ and beside dist/ alike. */
export function version(): string {
  const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8')
  return (JSON.parse(text) as { readonly version: string }).version
}
