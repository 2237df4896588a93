/** Arguments of `homing slots`, its output, and `startSlots`; test/system tests what it serves. */

import { slotsCommand } from '@homing/config'
import t from 'tap'
import { startSlots } from '../src/index.ts'
import { testServiceCommand } from './service-command.ts'

testServiceCommand(t, {
  command: slotsCommand,
  start: startSlots,
  firstRoute: '/register',
  wrong: [
    [['--replica-peer', 'tcp://a:1'], /--replica-peer needs --replica-endpoint, .* such as tcp:\/\/\*:5801/],
    [['--replica-endpoint', 'tcp://*:0'], /--replica-endpoint: "tcp:\/\/\*:0" is not 'tcp:\/\/\*:PORT'/],
  ],
})
