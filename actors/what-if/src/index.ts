export { WhatIfBusyError, WhatIfFailedError } from './errors.ts'
export type { WhatIfMessage, WhatIfQuestion, WhatIfReport, WhatIfRun } from './messages.ts'
export { type WhatIfArgs, whatIf } from './what-if.ts'
export { whatIfArgsFromSettings } from './what-if-args.ts'
