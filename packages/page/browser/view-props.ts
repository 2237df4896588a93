import type { Live, LiveState } from './live.ts'

/** What each view of the page is given. */
export interface ViewProps {
  readonly state: LiveState
  readonly live: Live
}
