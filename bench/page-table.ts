/** A table on a page of docs, between two marks. */

export interface Marks {
  readonly begin: string
  readonly end: string
}

export function marksOf(name: string): Marks {
  return { begin: `<!-- ${name}: begin -->`, end: `<!-- ${name}: end -->` }
}

/** `page` with the table between its marks. Throws if it has none. */
export function withTable(page: string, table: string, { begin, end }: Marks): string {
  const [from, to] = [page.indexOf(begin), page.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`cannot write the table: the page has no ${begin} … ${end}`)
  return `${page.slice(0, from + begin.length)}\n${table}\n${page.slice(to)}`
}
