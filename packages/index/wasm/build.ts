/**
 * Compiles loops/*.ts (AssemblyScript) and writes ../src/index-wasm.ts with the modules as base64, and ../test/hooked-wasm.ts
 * with one for tests, which calls the host before each access to a shared word.
 *
 * Run `pnpm exec node packages/index/wasm/build.ts` after a change of loops/*.ts or ../src/words.ts, and commit all. A test
 * compiles again and compares the text, so source and binary cannot drift apart. The result depends on nothing but
 * these files and the pinned version of the compiler.
 */

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** Files that are written, and where they lie. */
const PRODUCT = '../src/index-wasm.ts'
const HOOKED = '../test/hooked-wasm.ts'
const OPTIONS = [
  '-O3',
  '--noAssert',
  '--runtime',
  'stub',
  '--enable',
  'simd,threads',
  '--sharedMemory',
  '--importMemory',
  '--initialMemory',
  '1',
  '--maximumMemory',
  '65536',
]

/** The texts of all files that are made, by their paths; throws the compiler's words. */
export async function indexWasmTexts(): Promise<ReadonlyMap<string, string>> {
  const product = [
    ...constant(
      'The loops of the index, as base64: for processors that keep loads and stores in order.',
      'INDEX_WASM_BASE64',
      await compile({ isAtomic: false, isHooked: false }),
    ),
    ...constant(
      'The same with atomic access to every shared word.',
      'INDEX_ATOMIC_WASM_BASE64',
      await compile({ isAtomic: true, isHooked: false }),
    ),
  ]
  const hooked = constant(
    'The loops of the index with atomic access, and `hook` before each access to a shared word; as base64.',
    'HOOKED_WASM_BASE64',
    await compile({ isAtomic: true, isHooked: true }),
  )
  const head = ['/** Made by ../wasm/build.ts out of ../wasm/loops/*.ts; do not edit. */', '']
  return new Map(
    [
      [PRODUCT, [...head, ...product].join('\n')],
      [HOOKED, [...head, ...hooked].join('\n')],
    ].map(([name, text]) => [fileURLToPath(new URL(name!, import.meta.url)), text!]),
  )
}

async function compile(options: {
  readonly isAtomic: boolean
  readonly isHooked: boolean
}): Promise<Uint8Array> {
  // The compiler is heavy; whoever only wants the index never loads it.
  const { default: asc } = await import('assemblyscript/asc')
  let binary: Uint8Array | undefined
  const constants = [
    '--use',
    `ATOMIC=${Number(options.isAtomic)}`,
    '--use',
    `HOOKED=${Number(options.isHooked)}`,
  ]
  const { error, stderr } = await asc.main(
    ['loops/index.ts', '--outFile', 'index.wasm', ...OPTIONS, ...constants],
    {
      readFile: name => {
        const path = fileURLToPath(new URL(name, import.meta.url))
        return existsSync(path) ? readFileSync(path, 'utf8') : null
      },
      writeFile: (name, contents) => {
        if (name === 'index.wasm') binary = contents as Uint8Array
      },
      listFiles: () => [],
    },
  )
  if (error !== null || binary === undefined) {
    throw new Error(`cannot compile the loops of the index: ${stderr.toString()}`, { cause: error })
  }
  return binary
}

function constant(comment: string, name: string, binary: Uint8Array): string[] {
  return [`/** ${comment} */`, `export const ${name} =`, base64Lines(binary), '']
}

function base64Lines(binary: Uint8Array): string {
  const base64 = Buffer.from(binary).toString('base64')
  const lines: string[] = []
  for (let i = 0; i < base64.length; i += 100) lines.push(`  '${base64.slice(i, i + 100)}'`)
  return lines.join(' +\n')
}

if (import.meta.main) for (const [path, text] of await indexWasmTexts()) writeFileSync(path, text)
