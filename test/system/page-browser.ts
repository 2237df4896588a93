/** A real browser for tests of the page: Debian's Chromium, without a window. */

import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import process from 'node:process'
import puppeteer, { type Browser, type Page } from 'puppeteer-core'
import { until } from './fleet.ts'

const WAIT_MS_MAX = 15_000
/** Where pictures go; without it none are made. */
const PICTURES = process.env['HOMING_PICTURES']
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** The path of the browser; undefined: it is not installed. */
export const CHROMIUM = spawnSync('which', ['chromium'], { encoding: 'utf8' }).stdout.trim() || undefined

export const SIZES = [
  { width: 360, height: 740 },
  { width: 1600, height: 900 },
] as const
export const SCHEMES = ['light', 'dark'] as const
export type Scheme = (typeof SCHEMES)[number]

export async function startBrowser(): Promise<Browser> {
  return puppeteer.launch({
    executablePath: CHROMIUM!,
    // Tests may run as root, where Chromium's own sandbox does not.
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
  })
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

  /** `url` ends with '/'. */
  static async open(browser: Browser, url: string, view = 'fleet'): Promise<Tab> {
    const tab = new Tab(await browser.newPage())
    tab.page.setDefaultTimeout(WAIT_MS_MAX)
    await tab.page.goto(`${url}#${view}`, { waitUntil: 'load' })
    return tab
  }

  async show(view: string): Promise<void> {
    await this.page.click(`nav a[href="#${view}"]`)
    await this.page.waitForSelector(`nav a[href="#${view}"][aria-current]`)
  }

  async look(size: (typeof SIZES)[number], scheme: Scheme): Promise<void> {
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

  /** The value of an expression in the browser; as a text, since the types of the DOM are not those of these tests. */
  ask<T>(expression: string): Promise<T> {
    return this.page.evaluate(expression) as Promise<T>
  }

  live(): Promise<unknown> {
    return this.page.waitForSelector('.live-live')
  }

  /** What axe finds that is serious or worse. */
  async faults(): Promise<readonly string[]> {
    await this.page.evaluate(AXE)
    const { violations } = await this.ask<{ readonly violations: readonly Violation[] }>('axe.run()')
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
