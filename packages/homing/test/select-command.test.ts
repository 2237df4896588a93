/** Arguments of `homing select`, its output, and `startSelect`; test/system tests what it serves. */

import { selectCommand } from '@homing/config'
import t from 'tap'
import { startSelect } from '../src/index.ts'
import { testServiceCommand } from './service-command.ts'

testServiceCommand(t, {
  command: selectCommand,
  start: startSelect,
  firstRoute: '/workers',
  wrong: [
    // The rules of the router.
    [['--router-policy', 'auto', '--kv-overlap-score-weight', '2'], /has no effect on --router-policy auto/],
    [['--router-policy', 'linear', '--router-guard-share', '0'], /--router-guard-share has no effect on/],
    [['--router-session-affinity-mode', 'hard'], /have no effect without --router-session-affinity-ttl-secs/],
    [['--index-bytes', '1MiB', '--router-event-threads', '16'], /leaves 65536 bytes for each of/],
    [['--selection-module', '/nowhere.ts'], /--selection-module "\/nowhere.ts" cannot be loaded/],
  ],
})
