/**
 * Compiles word-loop.ts (AssemblyScript) and writes ../src/encoder/word-loop-wasm.ts with the module as base64.
 *
 * Run `pnpm exec node packages/tokenization/wasm/build.ts` after a change of word-loop.ts, and commit both. A test compiles
 * again and compares the text, so source and binary cannot drift apart.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const SOURCE = fileURLToPath(new URL('word-loop.ts', import.meta.url))
const TARGET = fileURLToPath(new URL('../src/encoder/word-loop-wasm.ts', import.meta.url))
const OPTIONS = [
  '-O3',
  '--converge',
  '--noAssert',
  '--runtime',
  'stub',
  '--enable',
  'simd',
  '--importMemory',
  '--initialMemory',
  '1',
]

/** Compiles word-loop.ts and returns the text of ../src/encoder/word-loop-wasm.ts; throws the compiler's words. */
export async function compileWordLoop(): Promise<string> {
  // The compiler is heavy; whoever only encodes never loads it.
  const { default: asc } = await import('assemblyscript/asc')
  let binary: Uint8Array | undefined
  const { error, stderr } = await asc.main(['word-loop.ts', '--outFile', 'word-loop.wasm', ...OPTIONS], {
    readFile: name => (name === 'word-loop.ts' ? readFileSync(SOURCE, 'utf8') : null),
    writeFile: (name, contents) => {
      if (name === 'word-loop.wasm') binary = contents as Uint8Array
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
    '/** Made by ../../wasm/build.ts out of ../../wasm/word-loop.ts; do not edit. */',
    '',
    '/** The WebAssembly module of the word loop, as base64. */',
    'export const WORD_LOOP_WASM_BASE64 =',
    lines.join(' +\n'),
    '',
  ].join('\n')
}

if (import.meta.main) writeFileSync(TARGET, await compileWordLoop())
