/**
 * What a changelog says of a version. Its headings, newest first:
 *
 *   ## Unreleased               what no version has yet
 *   ## 0.2.0, 2026-11-30        a version and its date
 *   ### Upgrade from 0.1.0      below either: what is to be done by hand
 */

const UNRELEASED = 'Unreleased'

export interface ChangesOptions {
  /** Of what comes next, whatever its version will be. */
  readonly isDraft?: boolean
}

/**
 * What follows `## VERSION`, up to the next heading of that kind; of a draft what follows `## Unreleased`, if
 * something does. Undefined: it has none of these, or nothing follows.
 */
export function changesOf(
  changelog: string,
  version: string,
  { isDraft = false }: ChangesOptions = {},
): string | undefined {
  const changes = (isDraft ? textBelow(changelog, UNRELEASED) : undefined) ?? textBelow(changelog, version)
  return changes === undefined ? undefined : `${changes}\n`
}

/** Why `version` cannot be released, or drafted, with this changelog; undefined: it can. */
export function refusalOf(
  changelog: string,
  version: string,
  { isDraft = false }: ChangesOptions = {},
): string | undefined {
  if (isDraft)
    return changesOf(changelog, version, { isDraft }) === undefined
      ? `cannot draft ${version}: CHANGELOG.md has neither "## ${version}" nor "## Unreleased"`
      : undefined
  if (changesOf(changelog, version) === undefined)
    return `cannot release ${version}: CHANGELOG.md has no "## ${version}": name what is unreleased after it, or try with --draft`
  if (textBelow(changelog, UNRELEASED) !== undefined)
    return `cannot release ${version}: CHANGELOG.md has changes after it, below "## Unreleased": give them the next version, or try with --draft`
  return undefined
}

/** Titles of its second level, in their order. */
export function titlesOf(changelog: string): readonly string[] {
  return Array.from(changelog.matchAll(/^## (.*)$/gm), ([, title]) => title!)
}

function textBelow(changelog: string, title: string): string | undefined {
  const part = changelog
    .split(/^## /m)
    .slice(1)
    .find(text => text.split('\n', 1)[0]!.split(/[ ,]/, 1)[0] === title)
  return part?.slice(part.indexOf('\n') + 1).trim() || undefined
}
