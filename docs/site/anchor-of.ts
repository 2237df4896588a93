/** Anchors of headings. */

/** As the repository's own viewer names headings, so that links lead to the same places there and here. */
export function anchorOf(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(/\s/g, '-')
}
