/** Whether the libraries of ext_proc are installed. Its declaration needs none of them. */

/** As npm takes them. */
export const EXT_PROC_PACKAGES = '@grpc/grpc-js protobufjs'

/** Undefined: they are installed; else what to do. Loads them. */
export async function faultOfExtProc(): Promise<string | undefined> {
  try {
    const { loadSchema } = await import('./schema.ts')
    await Promise.all([import('@grpc/grpc-js'), loadSchema()])
    return undefined
  } catch {
    return `needs packages that are not installed beside homing: npm install ${EXT_PROC_PACKAGES}`
  }
}
