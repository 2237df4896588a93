/** Counts of a broker for this thread, from its first use on. The users of the broker add to them. */
export class BrokerCounts {
  isConnected = false
  /** Connections that were made. */
  connections = 0
  /** Of all messages that were published. */
  publishedBytes = 0
  /** Published, and not read by the broker yet, as far as it is known. */
  underWayBytes = 0
  /** Messages that were not published: too much was under way, or the connection had ended. */
  lostMessages = 0
  /** HTTP calls that go over it now. */
  openCalls = 0
  /** Of answers, what waits because their readers are paused. */
  heldBytes = 0
  /** HTTP calls that have ended. */
  readonly endedCalls = { answered: 0, failed: 0, aborted: 0 }
  /** KV events in streams: messages that a stream has stored for publishers of this process. */
  streamStoredMessages = 0
  /** …that it did not take, and that their publisher could not keep any longer. */
  streamLostMessages = 0
  /** …that consumers of this process brought. */
  streamMessages = 0
  /** …bytes of those that are not dealt with: their receivers have them, or have yet to get them. */
  streamUntakenBytes = 0
  /** …under its subjects that are no messages of a publisher. */
  streamForeignMessages = 0
  /** Replays that were read from a stream. */
  streamReplays = 0
  /** Times that a stream could not be made, written, followed or read. */
  streamFailures = 0
}
