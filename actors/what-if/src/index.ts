export type { WhatIfMessage, WhatIfQuestion, WhatIfReport, WhatIfRun } from './messages.ts'
export { whatIf } from './what-if.ts'
export { whatIfArgsFromSettings } from './what-if-args.ts'
