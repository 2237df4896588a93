/** The modules of a sweep's threads: beside this one, .ts in the repository and .js when built. */

const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))

/** The module that runs a cell; with everything that it imports, it decides the result. */
export const cellTaskUrl = new URL(`cell-task${extension}`, import.meta.url).href

/** What a thread loads. */
export const cellThreadUrl = new URL(`cell-thread${extension}`, import.meta.url).href
