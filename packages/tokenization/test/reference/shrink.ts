/** Makes a text that shows a difference shorter, character by character, as long as it shows one. */

/** `shows` answers whether a text still shows it; the result does, and is no longer than `text`. */
export async function shrinkText(
  text: string,
  shows: (text: string) => boolean | Promise<boolean>,
): Promise<string> {
  let letters = Array.from(text)
  for (let size = letters.length >> 1; size > 0; ) {
    let isShorter = false
    for (let at = 0; at < letters.length; ) {
      const without = letters.toSpliced(at, size)
      if (await shows(without.join(''))) {
        letters = without
        isShorter = true
      } else at += size
    }
    if (!isShorter || size > 1) size >>= 1
  }
  return letters.join('')
}
