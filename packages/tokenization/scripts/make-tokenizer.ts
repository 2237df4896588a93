/**
 * Makes a small but real tokenizer directory, without a download: byte-level BPE trained on the text
 * below, the ChatML template with tools, and the files that Hugging Face writes.
 *
 *   ids   0 … 255         the bytes
 *         256 … n         what the merges make, in order of their rank
 *         n + 1 …         <|endoftext|> <|im_start|> <|im_end|>
 *
 * The result depends on nothing but this file. `pnpm exec node
 * packages/tokenization/scripts/make-tokenizer.ts DIR` writes it to DIR, by default to fixtures/tiny, which
 * is committed.
 */

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const MERGES_MAX = 1200
const PAIR_COUNT_MIN = 1
const SPECIAL_TOKENS = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']

/** How text is cut before merging: words with a leading space, single digits, punctuation, line ends. */
const WORD_PATTERN =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const CHAT_TEMPLATE = `{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'You may call these functions:\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>\\nAnswer a call as <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
`

const TRAINING_TEXT = `A router stands in front of a fleet of engines. Every engine keeps the keys and values of the tokens that it has seen, in blocks of sixteen tokens. When a new request begins with the same tokens, the engine does not need to compute them again: the prefix is already there. So the router should send the request to the engine that holds the longest prefix, unless that engine is so busy that another one would answer sooner.

You are a helpful assistant. You answer questions about software, science and daily life. Be brief, be honest, and say when you do not know. If the user asks for code, give a complete example that can be run as it stands.

The user wants to know the weather in Paris tomorrow. Call the function get_weather with the city and the unit. The answer is an object with the temperature in degrees, the wind and the chance of rain.

What is the capital of France? The capital of France is Paris. How many people live there? About two million people live in the city, and more than ten million in the whole region. Can you tell me more about its history? Of course! It's one of the oldest cities of Europe; I'll start with the Romans.

Please write a function that adds two numbers and returns the sum.

def add(first, second):
    """Return the sum of the two numbers."""
    return first + second

class Queue:
    def __init__(self, size_max=1000):
        self.items = []
        self.size_max = size_max

    def push(self, item):
        if len(self.items) >= self.size_max:
            raise ValueError("the queue is full")
        self.items.append(item)

    def pop(self):
        return self.items.pop(0)

for i in range(10):
    print(i, i * i)

export function longestPrefix(tokens: number[], blocks: Map<string, Block>): number {
  let count = 0
  for (const token of tokens) {
    if (!blocks.has(token.toString())) break
    count += 1
  }
  return count
}

const server = createServer((request, response) => {
  response.writeHead(200, { "content-type": "application/json" })
  response.end(JSON.stringify({ status: "ok", model: "tiny" }))
})

import json, os, sys
import { readFile } from 'node:fs/promises'

{"type": "function", "function": {"name": "get_weather", "description": "Get the current weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The name of the city"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}, "required": ["city"]}}}
{"type": "function", "function": {"name": "search", "description": "Search the web and return the first results", "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1, "maximum": 10}}, "required": ["query"]}}}
{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}
{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello! How can I help you today?"}, {"role": "system", "content": "You are a helpful assistant."}, {"role": "tool", "content": "{\\"temperature\\": 21, \\"wind\\": \\"weak\\"}", "tool_call_id": "call_1"}

Once upon a time there was a small house at the edge of a great forest. In the house lived an old woman with her two cats. Every morning she went to the well to fetch water, and every evening she sat by the fire and told stories about the time when she was young. One day a stranger came to the door. "Good evening," said the stranger. "I have come a long way, and I am tired. May I rest here for the night?" The old woman looked at him for a long time. Then she opened the door and let him in.

The quick brown fox jumps over the lazy dog. The five boxing wizards jump quickly. She sells sea shells by the sea shore. It was the best of times, it was the worst of times. To be, or not to be, that is the question.

Step 1: read the question carefully. Step 2: think about what is asked. Step 3: write down what you know. Step 4: compute the answer. Step 5: check the result. Therefore the answer is 42. Let me think about this again: if x is 3 and y is 4, then x * x + y * y is 25, and the square root of 25 is 5.

GET /v1/models HTTP/1.1
POST /v1/chat/completions HTTP/1.1
Content-Type: application/json
Content-Length: 1024
ERROR 2024-01-15 10:30:00 connection refused: 127.0.0.1:8000
INFO 2024-01-15 10:30:01 worker started on port 8001
WARN 2024-01-15 10:30:02 the queue of worker 3 is almost full

SELECT name, price FROM products WHERE price > 100 ORDER BY price DESC LIMIT 10;
git commit -m "Fix the parser" && git push origin main
npm install && npm test
<html><head><title>Test</title></head><body><p class="text">Hello, world!</p></body></html>

- first item
- second item
- third item

## Heading
### Another heading
| name | value |
| --- | --- |
| one | 1 |

Können Sie mir bitte helfen? Natürlich, sehr gerne. Das Wetter ist heute schön, aber morgen wird es regnen. Je voudrais un café, s'il vous plaît. Où est la bibliothèque? ¿Cómo estás? Muy bien, gracias. El niño come una manzana.
你好，世界。今天的天气很好。我们是朋友，你好吗？谢谢你的帮助。日本語のテキストです。これはテストです。東京は日本の首都です。Привет, мир! Как дела? Спасибо, хорошо. 😀 😀 👍 👍 🎉
`

/** Writes the directory, which is made when it does not exist. */
export async function makeTokenizerDirectory(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true })
  for (const [name, text] of tokenizerFiles()) await writeFile(join(directory, name), text)
}

/** The files of the directory, by name. */
export function tokenizerFiles(): ReadonlyMap<string, string> {
  const { vocabulary, merges } = train(TRAINING_TEXT)
  const firstSpecial = vocabulary.length
  const addedTokens = SPECIAL_TOKENS.map((content, i) => ({
    id: firstSpecial + i,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  }))
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false }
  const split = { type: 'Split', pattern: { Regex: WORD_PATTERN }, behavior: 'Isolated', invert: false }
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: addedTokens,
    normalizer: { type: 'NFC' },
    pre_tokenizer: { type: 'Sequence', pretokenizers: [split, byteLevel] },
    post_processor: byteLevel,
    decoder: byteLevel,
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: '',
      end_of_word_suffix: '',
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(vocabulary.map((token, id) => [token, id])),
      merges,
    },
  }
  const config = {
    add_prefix_space: false,
    added_tokens_decoder: Object.fromEntries(addedTokens.map(({ id, ...rest }) => [id, rest])),
    bos_token: null,
    clean_up_tokenization_spaces: false,
    eos_token: '<|im_end|>',
    errors: 'replace',
    model_max_length: 131072,
    pad_token: '<|endoftext|>',
    split_special_tokens: false,
    tokenizer_class: 'PreTrainedTokenizerFast',
    unk_token: null,
  }
  return new Map([
    ['tokenizer.json', `${JSON.stringify(tokenizer, null, 1)}\n`],
    ['tokenizer_config.json', `${JSON.stringify(config, null, 2)}\n`],
    ['chat_template.jinja', CHAT_TEMPLATE],
  ])
}

/** Byte pair encoding: again and again the most frequent pair of neighbors becomes one token. */
function train(text: string): { readonly vocabulary: string[]; readonly merges: [string, string][] } {
  const letters = byteLetters()
  const counts = new Map<string, number>()
  for (const [word] of text.matchAll(new RegExp(WORD_PATTERN, 'gu')))
    counts.set(word, (counts.get(word) ?? 0) + 1)
  const words = Array.from(counts, ([word, count]) => ({
    count,
    parts: Array.from(new TextEncoder().encode(word), byte => letters[byte]!),
  }))
  const vocabulary = [...letters].sort()
  const known = new Set(vocabulary)
  const merges: [string, string][] = []
  while (merges.length < MERGES_MAX) {
    const pairs = new Map<string, number>()
    for (const { parts, count } of words) {
      for (let i = 1; i < parts.length; i++) {
        const pair = `${parts[i - 1]} ${parts[i]}`
        pairs.set(pair, (pairs.get(pair) ?? 0) + count)
      }
    }
    // Ties go to the pair that sorts first, so that the result does not depend on the order of a map.
    let best: string | undefined
    let bestCount = PAIR_COUNT_MIN - 1
    for (const [pair, count] of pairs) {
      if (count > bestCount || (count === bestCount && best !== undefined && pair < best))
        [best, bestCount] = [pair, count]
    }
    if (best === undefined) break
    const [left, right] = best.split(' ') as [string, string]
    merges.push([left, right])
    if (!known.has(left + right)) vocabulary.push(left + right)
    known.add(left + right)
    for (const word of words) merge(word.parts, left, right)
  }
  return { vocabulary, merges }
}

function merge(parts: string[], left: string, right: string): void {
  for (let i = 1; i < parts.length; i++) {
    if (parts[i - 1] === left && parts[i] === right) parts.splice(i - 1, 2, left + right)
  }
}

/** The visible letter that stands for each byte in a byte-level vocabulary, as in GPT-2. */
function byteLetters(): string[] {
  let next = 256
  return Array.from({ length: 256 }, (_, byte) => {
    const isVisible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae
    return String.fromCharCode(isVisible ? byte : next++)
  })
}

if (import.meta.main) {
  await makeTokenizerDirectory(process.argv[2] ?? fileURLToPath(new URL('../fixtures/tiny', import.meta.url)))
}
