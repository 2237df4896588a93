/** The part of a changelog about one version. */

/**
 * What follows `## VERSION`, up to the next heading of that kind; of a draft before that heading exists, what
 * follows `## Unreleased`. Undefined: it has none of these, or nothing follows.
 */
export function changesOf(
  changelog: string,
  version: string,
  { isDraft = false }: { readonly isDraft?: boolean } = {},
): string | undefined {
  const parts = changelog.split(/^## /m).slice(1)
  const of = (title: string): string | undefined => {
    const part = parts.find(text => text.split('\n', 1)[0]!.split(/[ ,]/, 1)[0] === title)
    return part?.slice(part.indexOf('\n') + 1).trim() || undefined
  }
  const changes = of(version) ?? (isDraft ? of('Unreleased') : undefined)
  return changes === undefined ? undefined : `${changes}\n`
}
