/** The site of docs/: `pnpm docs:site` builds it into docs/site/dist. */

import { existsSync } from 'node:fs'
import { dirname, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type DefaultTheme, defineConfig } from 'vitepress'
import { anchorOf } from '../anchor-of.ts'
import { API_PACKAGES } from '../api-packages.ts'

const DOCS = fileURLToPath(new URL('../..', import.meta.url))
const ROOT = resolve(DOCS, '..')

const page = (text: string, name: string): DefaultTheme.SidebarItem => ({ text, link: `/${name}` })

const sidebar: DefaultTheme.SidebarItem[] = [
  {
    text: 'Begin',
    items: [
      page('Your first hour', 'first-hour'),
      page('Engines', 'engines'),
      page('Doctor', 'doctor'),
      page('Deployment', 'deploy'),
      page('Sizing', 'sizing'),
    ],
  },
  {
    text: 'Route',
    items: [
      page('Requests', 'requests'),
      page('Policies', 'policies'),
      page('Waiting', 'queue'),
      page('Several routers', 'scale-out'),
      page('Reliability', 'reliability'),
      page('Security', 'security'),
    ],
  },
  {
    text: 'Operate',
    items: [
      page('Configuration', 'configuration'),
      page('Routes', 'operations'),
      page('The page', 'page'),
      page('OpenAPI', 'openapi'),
      page('Metrics', 'metrics'),
      page('Errors', 'errors'),
      page('Decision log', 'decision-log'),
      page('Indexer service', 'indexer-service'),
      page('Slot tracker service', 'slots'),
      page('Selection service', 'select'),
      page('Endpoint picker', 'endpoint-picker'),
    ],
  },
  {
    text: 'Measure',
    items: [
      page('Simulator', 'simulator'),
      page('Routing quality', 'routing-quality'),
      page('Benchmarks', 'benchmarks'),
      page('Records of quality', 'records/routing-quality'),
      page('Records of speed', 'records/benchmarks'),
    ],
  },
  {
    text: 'Build on it',
    items: [
      page('Embedding', 'embedding'),
      page('Library', 'library'),
      page('Python', 'python'),
      page('Workers in a program', 'worker'),
      page('Publisher', 'publisher'),
      page('Actors', 'actors'),
      page('Actor runtime', 'actor-runtime'),
      page('Architecture', 'architecture'),
      page('Decisions', 'decisions/README'),
      page('Glossary', 'glossary'),
    ],
  },
  {
    text: 'API',
    collapsed: true,
    items: API_PACKAGES.map(({ title, folder }) => page(title, `api/${folder}/`)),
  },
]

export default defineConfig({
  title: 'Homing',
  description: 'A router that sends each request to the LLM engine that holds the KV cache of its prefix',
  lang: 'en',
  srcDir: DOCS,
  outDir: resolve(DOCS, 'site/dist'),
  cacheDir: resolve(ROOT, '.cache/site'),
  // Works from a folder of any server, and under any prefix that is given.
  base: process.env['HOMING_SITE_BASE'] ?? '/',
  srcExclude: ['site/node_modules/**', 'site/*.md'],
  rewrites: { 'site/index-page/index.md': 'index.md', 'site/api/:path(.*)': 'api/:path' },
  lastUpdated: false,
  cleanUrls: false,
  // Addresses of one's own machine are examples.
  ignoreDeadLinks: 'localhostLinks',
  markdown: {
    anchor: { slugify: anchorOf },
    config(md) {
      md.core.ruler.push('outside', state => {
        const from = dirname(resolve(DOCS, state.env.relativePath ?? ''))
        for (const { children } of state.tokens) {
          for (const token of children ?? []) {
            const href = token.type === 'link_open' ? token.attrGet('href') : null
            if (href === null || /^[a-z]+:|^#/.test(href)) continue
            const target = resolve(from, decodeURI(href.split('#')[0]!))
            if (!existsSync(target)) continue
            if (target.endsWith('.md') && !relative(DOCS, target).startsWith('..')) continue
            // Files that are no pages come with the site: see build-site.ts.
            token.attrSet('href', `/files/${relative(ROOT, target)}`)
            token.attrSet('target', '_self')
          }
        }
      })
    },
  },
  themeConfig: {
    sidebar,
    outline: { level: [2, 3] },
    search: { provider: 'local' },
    nav: [
      { text: 'First hour', link: '/first-hour' },
      { text: 'Routes', link: '/operations' },
      { text: 'Configuration', link: '/configuration' },
    ],
    docFooter: { prev: false, next: false },
  },
})
