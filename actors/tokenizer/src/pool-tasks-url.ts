/** Where the pool's threads find their tasks: beside this module, .ts in the repository and .js when built. */
export const poolTasksUrl = new URL(
  `pool-tasks${import.meta.url.slice(import.meta.url.lastIndexOf('.'))}`,
  import.meta.url,
).href
