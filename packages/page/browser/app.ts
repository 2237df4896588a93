/** The frame of the page: whether it is live, where one is, the views. */

import type { VNode } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { DecisionsView } from './decisions-view.ts'
import { el, note, part } from './elements.ts'
import { FleetView } from './fleet-view.ts'
import { timeOfDay } from './format.ts'
import { HouseView } from './house-view.ts'
import { Live, type LiveState } from './live.ts'
import { MapView } from './map-view.ts'
import { PaysView } from './pays-view.ts'
import type { ViewProps } from './view-props.ts'
import { WaitingView } from './waiting-view.ts'
import { WhatIfView } from './what-if-view.ts'

interface View {
  readonly name: string
  readonly title: string
  readonly draw: (props: ViewProps) => VNode
}

const VIEWS: readonly View[] = [
  { name: 'fleet', title: 'Fleet', draw: props => part(FleetView, props) },
  { name: 'map', title: 'Cache map', draw: props => part(MapView, props) },
  { name: 'decisions', title: 'Decisions', draw: props => part(DecisionsView, props) },
  { name: 'pays', title: 'Does it pay?', draw: props => part(PaysView, props) },
  { name: 'waiting', title: 'Waiting', draw: props => part(WaitingView, props) },
  { name: 'what-if', title: 'What if?', draw: props => part(WhatIfView, props) },
  { name: 'house', title: 'The house', draw: props => part(HouseView, props) },
]

const live = new Live()

export function App(): VNode {
  const [state, setState] = useState(live.state)
  const [name, setName] = useState(nameOfPlace())
  useEffect(() => {
    live.start(setState)
    addEventListener('hashchange', () => setName(nameOfPlace()))
  }, [])
  const view = VIEWS.find(one => one.name === name) ?? VIEWS[0]!
  useEffect(() => {
    document.title = `${view.title} · Homing`
  }, [view])
  return el(
    'div.frame',
    null,
    el('a.skip', { href: '#view', onClick: focusView }, 'To the content'),
    el(
      'header',
      null,
      el('a.brand', { href: '#fleet' }, logo(), el('span', null, 'Homing')),
      el(
        'nav',
        { 'aria-label': 'Views' },
        ...VIEWS.map(one =>
          el('a', { href: `#${one.name}`, 'aria-current': one === view ? 'page' : undefined }, one.title),
        ),
      ),
      part(LiveSign, { state }),
    ),
    banner(state),
    state.needsKey
      ? null
      : el('main', { id: 'view', tabIndex: -1 }, el('h1', null, view.title), view.draw({ state, live })),
    foot(state),
  )
}

function nameOfPlace(): string {
  return location.hash.slice(1)
}

/** The place names a view, so this link must not change it. */
function focusView(event: Event): void {
  event.preventDefault()
  document.getElementById('view')?.focus()
}

const SIGNS = {
  live: ['●', 'live'],
  connecting: ['…', 'connecting'],
  lost: ['✕', 'not connected'],
  refused: ['✕', 'no access'],
} as const

function LiveSign({ state: { status } }: { readonly state: LiveState }): VNode {
  const [sign, word] = SIGNS[status]
  return el(
    'span.live',
    { class: `live-${status}`, role: 'status' },
    el('span', { 'aria-hidden': 'true' }, sign),
    ` ${word}`,
  )
}

function banner(state: LiveState): VNode | null {
  const { status, reason, needsKey, attempts, restarts, sections } = state
  if (needsKey) return part(KeyForm, { wasWrong: sessionStorage.length > 0, reason })
  if (status === 'refused') return note('fault', `${capital(reason)}.`)
  if (status === 'lost') {
    const old = sections.beat === undefined ? '' : ` What is shown is of ${timeOfDay(sections.beat.now)}.`
    return note('fault', `${capital(reason)}; asking again (attempt ${attempts}).${old}`)
  }
  const silent = sections.beat?.silent ?? []
  if (silent.length > 0)
    return note('warning', `No answer in time about: ${silent.join(', ')}. Those figures are old.`)
  if (restarts > 0)
    return note(
      'warning',
      `The router was started anew while this page was open (${restarts} ×); totals began again.`,
    )
  return null
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1)
}

function KeyForm({ wasWrong, reason }: { readonly wasWrong: boolean; readonly reason: string }): VNode {
  const submit = (event: SubmitEvent): void => {
    event.preventDefault()
    const key = new FormData(event.target as HTMLFormElement).get('key')
    if (typeof key === 'string' && key !== '') live.useKey(key)
  }
  return el(
    'form.key',
    { onSubmit: submit },
    el(
      'p',
      null,
      wasWrong ? 'The router does not take this key.' : 'This router shows its page to whoever has its key.',
    ),
    el('label', { for: 'key' }, 'Key for operators (--admin-key-file, --admin-keys-file)'),
    el('input', { id: 'key', name: 'key', type: 'password', autocomplete: 'off', required: true }),
    el('button', { type: 'submit' }, 'Look'),
    el('p.small', null, `The key stays in this tab. The router says: ${reason}.`),
  )
}

function foot({ sections: { beat } }: LiveState): VNode {
  if (beat === undefined) return el('footer', null)
  const cost = `An update took the router ${beat.build_ms} ms, for all tabs together; the next ${beat.interval_ms} ms later.`
  return el(
    'footer',
    null,
    el('span', null, `Router time ${timeOfDay(beat.now)}`),
    el('span', { 'data-field': 'tabs' }, `${beat.tabs} of ${beat.tabs_max} tabs open`),
    el('span', null, cost),
    el('span', null, 'Ages go by the router’s clock.'),
  )
}

function logo(): VNode {
  return el(
    'svg.logo',
    { viewBox: '0 0 32 32', 'aria-hidden': 'true' },
    el('path', {
      d: 'M4 17 16 6l12 11M8.500 14v12h15V14',
      fill: 'none',
      stroke: 'currentColor',
      'stroke-width': 2.8,
      'stroke-linecap': 'round',
      'stroke-linejoin': 'round',
    }),
    el('circle', { cx: 16, cy: 19, r: 3, fill: 'currentColor' }),
  )
}
