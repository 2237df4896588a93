/** Where clients say which conversation a request belongs to: the defaults, and what may be given instead. */

/**
 * Headers, in the order in which they count.
 *
 * Source: what the clients send. Codex CLI: session_id (older: conversation_id; newer: session-id,
 * thread-id). Claude Code: x-claude-code-session-id. OpenCode: x-session-id, x-session-affinity,
 * x-opencode-session. LiteLLM and Helicone: their own.
 */
export const AFFINITY_HEADERS: readonly string[] = [
  'x-dynamo-session-id',
  'x-session-id',
  'x-conversation-id',
  'x-session-affinity',
  'x-claude-code-session-id',
  'x-opencode-session',
  'session_id',
  'session-id',
  'conversation_id',
  'thread-id',
  'x-litellm-session-id',
  'helicone-session-id',
]

/**
 * Members of the body: OpenAI's prompt_cache_key, which Codex CLI and others set to their conversation, and
 * OpenRouter's session_id. Not `user` and `safety_identifier`: these name a person, who may have many
 * conversations at a time.
 */
export const AFFINITY_FIELDS: readonly string[] = ['prompt_cache_key', 'session_id']

export function faultOfHeader(name: string): string | undefined {
  return /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/.test(name) ? undefined : 'is no name of a header'
}

export function faultOfField(name: string): string | undefined {
  return /^[A-Za-z0-9_.-]{1,128}$/.test(name) ? undefined : 'is no name of a member of a body'
}
