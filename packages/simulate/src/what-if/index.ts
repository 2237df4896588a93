export {
  CHUNK_BYTES,
  RequestMemory,
  type RequestMemoryOptions,
  type RequestMemoryStatus,
} from './request-memory.ts'
export type {
  KeptChunk,
  KeptRequest,
  KeptRequests,
  WhatIfAnswer,
  WhatIfFit,
  WhatIfProgress,
  WhatIfRow,
  WhatIfTask,
} from './types.ts'
export { WHAT_IF_PROFILES } from './types.ts'
