/** The start of the page in the browser. */

import { h, render } from 'preact'
import { App } from './app.ts'

const root = document.getElementById('page')
if (root !== null) {
  root.replaceChildren()
  render(h(App, null), root)
}
