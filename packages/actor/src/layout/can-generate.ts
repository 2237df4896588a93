/** False where the process forbids code from strings (--disallow-code-generation-from-strings). */
export function canGenerate(): boolean {
  try {
    new Function('')
    return true
  } catch {
    return false
  }
}
