/**
 * A real browser for tests of the page: Debian's Chromium, without a window; and requests for the page to
 * show.
 */

import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import process from 'node:process'
import puppeteer, { type Browser, type Page } from 'puppeteer-core'
import type { Test } from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { type Fleet, until } from './fleet.ts'

const WAIT_MS_MAX = 240_000
/** Where pictures go; without it none are made. */
const PICTURES = process.env['HOMING_PICTURES']
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** The path of the browser; undefined: it is not installed. */
export const CHROMIUM = spawnSync('which', ['chromium'], { encoding: 'utf8' }).stdout.trim() || undefined

export const VIEWS = ['fleet', 'map', 'decisions', 'pays', 'waiting', 'what-if', 'house'] as const
export const SIZES = [
  { width: 360, height: 740 },
  { width: 1600, height: 900 },
] as const
/** The largest that the page is made for. */
export const SIZE_4K = { width: 3840, height: 2160 } as const
export const SCHEMES = ['light', 'dark'] as const
export type Scheme = (typeof SCHEMES)[number]

export async function startBrowser(): Promise<Browser> {
  return puppeteer.launch({
    executablePath: CHROMIUM!,
    // Tests may run as root, where Chromium's own sandbox does not.
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
  })
}

/** A script: new dates, and Date.now, are of this time. */
function clockAt(ms: number): string {
  return `Date = class extends Date {
    constructor(...parts) { super(...(parts.length === 0 ? [${ms}] : parts)) }
    static now() { return ${ms} }
  }`
}

interface Violation {
  readonly id: string
  readonly impact: string
  readonly nodes: readonly { readonly html: string; readonly failureSummary: string }[]
}

/** A tab with the page, and what went wrong in it. */
export class Tab {
  readonly page: Page
  readonly errors: string[] = []

  private constructor(page: Page) {
    this.page = page
    page.on('pageerror', error => this.errors.push(String(error)))
    page.on('console', message => {
      if (message.type() === 'error') this.errors.push(message.text())
    })
  }

  /** `url` ends with '/'; `clockMs`: where the clock of the browser stands still. */
  static async open(browser: Browser, url: string, view = 'fleet', clockMs?: number): Promise<Tab> {
    const tab = new Tab(await browser.newPage())
    tab.page.setDefaultTimeout(WAIT_MS_MAX)
    if (clockMs !== undefined) await tab.page.evaluateOnNewDocument(clockAt(clockMs))
    await tab.page.goto(`${url}#${view}`, { waitUntil: 'load' })
    return tab
  }

  async show(view: string): Promise<void> {
    await this.page.click(`nav a[href="#${view}"]`)
    await this.page.waitForSelector(`nav a[href="#${view}"][aria-current]`)
  }

  async look(size: (typeof SIZES)[number] | typeof SIZE_4K, scheme: Scheme): Promise<void> {
    await this.page.setViewport(size)
    await this.page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }])
  }

  /** Resolves when all these words are on the page. */
  async says(...words: readonly string[]): Promise<void> {
    let seen = ''
    await until(
      `the page says ${words.join(', ')}`,
      async () => {
        seen = await this.text()
        return words.every(word => seen.includes(word)) ? true : undefined
      },
      { msMax: WAIT_MS_MAX, seen: () => seen },
    )
  }

  text(): Promise<string> {
    return this.ask<string>('document.body.innerText')
  }

  /**
   * The value of an expression in the browser; as a text, since these tests do not have the types of the DOM.
   */
  ask<T>(expression: string): Promise<T> {
    return this.page.evaluate(expression) as Promise<T>
  }

  live(): Promise<unknown> {
    return this.page.waitForSelector('.live-live')
  }

  /** What axe finds that is serious or worse. */
  async faults(): Promise<readonly string[]> {
    // Once in a document: its views are no other documents.
    if (!(await this.ask<boolean>("'axe' in window"))) await this.page.evaluate(AXE)
    const { violations } = await this.ask<{ readonly violations: readonly Violation[] }>(
      "axe.run({ resultTypes: ['violations'] })",
    )
    return violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .flatMap(({ id, nodes }) =>
        nodes
          .slice(0, 2)
          .map(node => `${id}: ${node.html.slice(0, 160)} ${node.failureSummary.slice(0, 200)}`),
      )
  }

  /** Pixels by which the page is wider than its window. */
  overflow(): Promise<number> {
    return this.ask<number>('document.documentElement.scrollWidth - innerWidth')
  }

  async picture(name: string): Promise<void> {
    if (PICTURES === undefined) return
    mkdirSync(PICTURES, { recursive: true })
    await this.page.screenshot({ path: join(PICTURES, `${name}.webp`) as `${string}.webp`, quality: 70 })
  }

  /** What `data-field` elements below `selector` say, by field. */
  figures(selector: string): Promise<Record<string, string>> {
    return this.page.$eval(selector, element =>
      Object.fromEntries(
        [...element.querySelectorAll('[data-field]')].map(one => [
          one.getAttribute('data-field'),
          one.getAttribute('data-value') ?? '',
        ]),
      ),
    )
  }
}

/** All prompts share the first 48 tokens. */
export const promptOf = (seed: number, blocks = 6): number[] =>
  Array.from({ length: blocks * 16 }, (_, at) => 40 + ((at < 48 ? at * 7 : seed * 31 + at * 7) % 80))

/** Twelve requests for four prompts; resolves when the router knows all their effects. */
export async function load(t: Test, fleet: Fleet, model = MODEL): Promise<void> {
  for (let i = 0; i < 12; i++) {
    const body = { model, prompt: promptOf(i % 4), max_tokens: 4, stream: i % 2 === 0 }
    t.equal((await fleet.send('/v1/completions', { body })).status, 200)
  }
  await fleet.drained()
  await fleet.caughtUp(fleet.engines)
}
