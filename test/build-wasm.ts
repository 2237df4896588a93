/**
 * Compiles the WebAssembly of four packages (AssemblyScript), and writes each module as base64 into a file
 * of TypeScript.
 *
 * Run `pnpm exec node test/build-wasm.ts` after a change of a source under packages/NAME/wasm/, and commit
 * the source and the result. A test compiles again and compares the texts, so the two cannot drift apart. The
 * results depend on nothing but the sources and the pinned version of the compiler.
 */

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

interface WasmConstant {
  readonly name: string
  readonly comment: string
  /** Compiler options, beside those of the source. */
  readonly options?: readonly string[]
}

interface WasmSource {
  /** Paths from the root: of the folder with the sources, and of the file to compile within it. */
  readonly folder: string
  readonly entry: string
  /** How the written files name the sources. */
  readonly sources: string
  /** Of the compiler. */
  readonly options: readonly string[]
  /** The files to write, by their paths from the root. */
  readonly files: Readonly<Record<string, readonly WasmConstant[]>>
}

const ROOT = new URL('../', import.meta.url)
const COLUMNS = 100
const OPTIONS = ['-O3', '--noAssert', '--runtime', 'stub', '--enable']

const SOURCES: readonly WasmSource[] = [
  {
    folder: 'packages/blocks/wasm',
    entry: 'xxh3.ts',
    sources: 'xxh3.ts',
    options: ['simd', '--converge', '--initialMemory', '4'],
    files: {
      'packages/blocks/src/xxh3-wasm.ts': [
        { name: 'XXH3_WASM_BASE64', comment: 'The WebAssembly module of XXH3-64, as base64.' },
      ],
    },
  },
  {
    folder: 'packages/index/wasm',
    entry: 'loops/index.ts',
    sources: 'loops/*.ts',
    options: [
      'simd,threads',
      '--sharedMemory',
      '--importMemory',
      '--initialMemory',
      '1',
      '--maximumMemory',
      '65536',
    ],
    files: {
      'packages/index/src/index-wasm.ts': [
        {
          name: 'INDEX_WASM_BASE64',
          comment: 'The loops of the index, as base64: for processors that keep loads and stores in order.',
          options: ['--use', 'ATOMIC=0', '--use', 'HOOKED=0'],
        },
        {
          name: 'INDEX_ATOMIC_WASM_BASE64',
          comment: 'The same with atomic access to every shared word.',
          options: ['--use', 'ATOMIC=1', '--use', 'HOOKED=0'],
        },
      ],
      // For tests: it calls the host before each access to a shared word.
      'packages/index/test/hooked-wasm.ts': [
        {
          name: 'HOOKED_WASM_BASE64',
          comment:
            'The loops of the index with atomic access, and `hook` before each access to a shared word; as base64.',
          options: ['--use', 'ATOMIC=1', '--use', 'HOOKED=1'],
        },
      ],
    },
  },
  {
    folder: 'packages/openai/wasm',
    entry: 'string-end.ts',
    sources: 'string-end.ts',
    options: ['simd', '--converge', '--initialMemory', '2'],
    files: {
      'packages/openai/src/string-end-wasm.ts': [
        { name: 'STRING_END_WASM_BASE64', comment: 'The module that finds the end of a text, as base64.' },
      ],
    },
  },
  {
    folder: 'packages/tokenization/wasm',
    entry: 'word-loop.ts',
    sources: 'word-loop.ts',
    options: ['simd', '--converge', '--importMemory', '--initialMemory', '1'],
    files: {
      'packages/tokenization/src/encoder/word-loop-wasm.ts': [
        { name: 'WORD_LOOP_WASM_BASE64', comment: 'The WebAssembly module of the word loop, as base64.' },
      ],
    },
  },
]

/** The texts of all files that are made, by their absolute paths; rejects with the words of the compiler. */
export async function wasmTexts(): Promise<ReadonlyMap<string, string>> {
  const texts = new Map<string, string>()
  for (const source of SOURCES) {
    for (const [path, constants] of Object.entries(source.files)) {
      const from = relative(dirname(path), source.folder)
      const lines = [`/** Made by test/build-wasm.ts out of ${from}/${source.sources}; do not edit. */`, '']
      for (const { name, comment, options = [] } of constants) {
        const base64 = await compile(source, options)
        lines.push(`/** ${comment} */`, `export const ${name} =`, quotedLines(base64), '')
      }
      texts.set(fileURLToPath(new URL(path, ROOT)), lines.join('\n'))
    }
  }
  return texts
}

/** The module as base64. */
async function compile(source: WasmSource, options: readonly string[]): Promise<string> {
  // The compiler is heavy: the other programs of this folder never load it.
  const { default: asc } = await import('assemblyscript/asc')
  let binary: Uint8Array | undefined
  const { error, stderr } = await asc.main(
    [source.entry, '--outFile', 'module.wasm', ...OPTIONS, ...source.options, ...options],
    {
      readFile: name => {
        const path = new URL(`${source.folder}/${name}`, ROOT)
        return existsSync(path) ? readFileSync(path, 'utf8') : null
      },
      writeFile: (name, contents) => {
        if (name === 'module.wasm') binary = contents as Uint8Array
      },
      listFiles: () => [],
    },
  )
  if (error !== null || binary === undefined) {
    const reason = stderr.toString()
    throw new Error(`cannot compile ${source.folder}/${source.entry}: ${reason}`, { cause: error })
  }
  return Buffer.from(binary).toString('base64')
}

function quotedLines(base64: string): string {
  const lines: string[] = []
  for (let i = 0; i < base64.length; i += COLUMNS) lines.push(`  '${base64.slice(i, i + COLUMNS)}'`)
  return lines.join(' +\n')
}

if (import.meta.main) for (const [path, text] of await wasmTexts()) writeFileSync(path, text)
