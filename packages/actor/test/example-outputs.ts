/** What the programs of examples/ print. */

export const exampleOutputs: Readonly<Record<string, string>> = {
  'hello.js': 'hello Ada, from core-0\n',
  'ping-pong.ts': '1000 hits between court-0 and court-1, the last by pong\n',
  'own-actor.ts': `flies: 2
home, after it failed: 1
a tell while its thread is away: ok
again, after its thread was replaced: 1
restarts of the actor: 1, lives of its thread: 2
slow to stop: 0
`,
  'supervised-counter.ts': `  an instance that counted to 3 is replaced
first failure: restarts 1, count 1
  an instance that counted to 4 is replaced
second failure: restarts 2, count 1
  the last instance ends: failed
third failure: the tally ends, failed: HOMING_ACTOR_RESTART_BUDGET
tell answers dead
`,
  'ask-across-threads.ts': `an answer: 144
none by the deadline: AskTimeoutError HOMING_ACTOR_ASK_TIMEOUT
the next answer: 169
the caller goes away: AskAbortedError HOMING_ACTOR_ASK_ABORTED
the arm fails: RemoteError HOMING_INTERNAL_UNEXPECTED
it was restarted: 196
the thread dies: ThreadDownError HOMING_ACTOR_THREAD_DOWN
it was replaced: 256
asks left open: 0
`,
  'supervised-pool.ts': `answered: 19 of 20
sum: 354
restarts: 1
`,
  'watch.ts': `failed: failed, HOMING_ACTOR_FAILED
lost: threadExit, HOMING_ACTOR_THREAD_DOWN
stopped: stopped
`,
  'overflow.ts': `reject: ok ok ok full; read: urgent a0 b1 a2
dropOldest: ok ok ok ok; read: urgent b1 a2 c3
dropNewest: ok ok ok ok; read: urgent a0 b1 a2
coalesce: ok ok ok ok; read: urgent a2 b1 c3
dead letters: 2 dropped, 1 replaced
`,
  'timers.ts': `once tick tick tick
after an hour: once tick tick tick
`,
  'draining-shutdown.ts': `at once: some dropped, undrained: none, told so: true
after the mailbox: all filed, undrained: none, told so: true
after the mailbox, too slow: some dropped, undrained: archivist, told so: true
`,
  'transfer.ts': `here, once it is asked: 0 bytes
back: 1048576 bytes of colour 7
`,
  'dying-threads.ts': `while it blocks: HOMING_ACTOR_THREAD_DOWN
then: core-0
as it exits: HOMING_ACTOR_THREAD_DOWN
then: core-0
all the time: core-1
core-0 was replaced twice: true
`,
  'seeds.ts': `cannot pass seed N: 2 coins came out of an account with one
  again: SEED=N node seeds.ts
seed 7 twice: one history
`,
}
