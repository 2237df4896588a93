/** What tests make of a registry of packages that they get nothing from. */

/**
 * What npm, pnpm and pip say where they get to no registry, to none that they trust, or to one that does not
 * answer now. Of a command that has failed: they try again by themselves, and say so.
 */
export const REGISTRY_AWAY =
  /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|ENETUNREACH|EHOSTUNREACH|SELF_SIGNED_CERT|ERR_PNPM_NO_OFFLINE|ERR_PNPM_META_FETCH_FAIL|ERR_PNPM_FETCH_(429|5\d\d)|\bE(429|50[0-4])\b|No matching distribution found|Could not fetch URL/
