/**
 * Cuts the output of a group (group.ts) into those of its files.
 *
 *   # Subtest: test/a.test.ts
 *       # Subtest: a case          of the file: indented, its plan included
 *       …
 *   ok 1 - test/a.test.ts # time=12.5ms
 *
 * What a test prints by itself is not indented, and belongs to no file.
 */

const INDENT = '    '
const BEGINNING = '# Subtest: '

export interface FileOutput {
  /** TAP, as the file alone would have printed it. */
  readonly tap: string
  /** Undefined: the process ended before the file did. */
  readonly seconds: number | undefined
}

export interface GroupOutput {
  /** A file that has not begun is not in it. */
  readonly files: ReadonlyMap<string, FileOutput>
  /** Titles of tests of the root: a module beside a test file has imported 'tap' and not taken its test. */
  readonly strays: readonly string[]
}

export function cutGroup(output: string, files: readonly string[]): GroupOutput {
  const found = new Map<string, FileOutput>()
  const strays: string[] = []
  const wanted = new Set(files)
  let open: { readonly file: string; readonly lines: string[] } | undefined
  for (const line of output.split('\n')) {
    if (open === undefined) {
      if (!line.startsWith(BEGINNING)) continue
      const file = line.slice(BEGINNING.length)
      if (wanted.has(file)) open = { file, lines: [] }
      else strays.push(file)
      continue
    }
    const end = /^(?:not )?ok \d+ - (.*?)(?: # (?:time=([\d.]+)ms|.*))?$/.exec(line)
    if (end !== null && end[1] === open.file) {
      found.set(open.file, { tap: open.lines.join('\n'), seconds: Number(end[2] ?? 0) / 1000 })
      open = undefined
    } else if (line === '' || line.startsWith(INDENT)) {
      open.lines.push(line.slice(INDENT.length))
    }
  }
  if (open !== undefined) found.set(open.file, { tap: open.lines.join('\n'), seconds: undefined })
  return { files: found, strays }
}
