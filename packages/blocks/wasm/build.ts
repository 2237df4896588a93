/**
 * Compiles xxh3.ts (AssemblyScript) and writes ../src/xxh3-wasm.ts with the module as base64.
 *
 * Run `pnpm exec node packages/blocks/wasm/build.ts` after a change of xxh3.ts, and commit both. A test
 * compiles again and compares the text, so source and binary cannot drift apart. The result
 * depends on nothing but xxh3.ts and the pinned version of the compiler.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const SOURCE = fileURLToPath(new URL('xxh3.ts', import.meta.url))
const TARGET = fileURLToPath(new URL('../src/xxh3-wasm.ts', import.meta.url))
const OPTIONS = [
  '-O3',
  '--converge',
  '--noAssert',
  '--runtime',
  'stub',
  '--enable',
  'simd',
  '--initialMemory',
  '4',
]

/** Compiles xxh3.ts and returns the text of ../src/xxh3-wasm.ts; throws the compiler's words. */
export async function compileXxh3(): Promise<string> {
  // The compiler is heavy; whoever only wants the hash never loads it.
  const { default: asc } = await import('assemblyscript/asc')
  let binary: Uint8Array | undefined
  const { error, stderr } = await asc.main(['xxh3.ts', '--outFile', 'xxh3.wasm', ...OPTIONS], {
    readFile: name => (name === 'xxh3.ts' ? readFileSync(SOURCE, 'utf8') : null),
    writeFile: (name, contents) => {
      if (name === 'xxh3.wasm') binary = contents as Uint8Array
    },
    listFiles: () => [],
  })
  if (error !== null || binary === undefined) {
    throw new Error(`cannot compile ${SOURCE}: ${stderr.toString()}`, { cause: error })
  }
  return moduleText(Buffer.from(binary).toString('base64'))
}

function moduleText(base64: string): string {
  const lines: string[] = []
  for (let i = 0; i < base64.length; i += 100) lines.push(`  '${base64.slice(i, i + 100)}'`)
  return [
    '/** Made by ../wasm/build.ts out of ../wasm/xxh3.ts; do not edit. */',
    '',
    '/** The WebAssembly module of XXH3-64, as base64. */',
    'export const XXH3_WASM_BASE64 =',
    lines.join(' +\n'),
    '',
  ].join('\n')
}

if (import.meta.main) writeFileSync(TARGET, await compileXxh3())
