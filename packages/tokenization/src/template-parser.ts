/**
 * The syntax of templates, as Jinja2 3.1 reads it with the extensions of transformers (`loopcontrols`, and
 * `generation`).
 *
 *   statement   {% if %} {% for %} {% set %} {% macro %} {% call %} {% filter %} {% with %} {% generation %}
 *               {% break %} {% continue %}
 *   expression  a if b else c  <  or  <  and  <  not  <  == in …  <  + -  <  ~  <  * / // %  <  **  <  - +
 *               <  | is ( [ .           (from loose to tight)
 *
 * Anything else that Jinja2 knows is refused by name, and what Jinja2 refuses is refused, too.
 *
 * Bounds   SYNTAX_NESTING_MAX expressions or blocks in each other.
 * Source   jinja2/parser.py 3.1.6.
 */

import { RenderingRefusedError } from './errors.ts'
import type { CallNode, FilterCall, Identifier, Node } from './template-ast.ts'
import { type Token, type TokenType, templateTokens } from './template-lexer.ts'

const SYNTAX_NESTING_MAX = 200
/** Statements of Jinja2 that are not rendered here. */
const REFUSED_STATEMENTS: ReadonlySet<string> = new Set([
  'autoescape',
  'block',
  'extends',
  'from',
  'import',
  'include',
  'print',
])
const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
])
const COMPARISONS: ReadonlySet<string> = new Set(['==', '!=', '<', '>', '<=', '>='])

/** Parses a template. Throws RenderingRefusedError when it cannot be read, or not as Jinja2 reads it. */
export function parseTemplate(source: string): Node {
  return { type: 'Program', body: new Parser(templateTokens(source)).program() }
}

class Parser {
  readonly #tokens: readonly Token[]
  #position = 0
  #nesting = 0

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens
  }

  program(): readonly Node[] {
    const body = this.#body([])
    if (this.#current.type !== 'end') this.#fail('an end of the template')
    return body
  }

  get #current(): Token {
    return this.#tokens[this.#position]!
  }

  #next(): Token {
    const token = this.#current
    if (token.type !== 'end') this.#position++
    return token
  }

  #is(type: TokenType, value?: string): boolean {
    const current = this.#current
    return current.type === type && (value === undefined || current.value === value)
  }

  #skip(type: TokenType, value: string): boolean {
    if (!this.#is(type, value)) return false
    this.#position++
    return true
  }

  #expect(type: TokenType, value?: string): Token {
    if (!this.#is(type, value)) this.#fail(value ?? type)
    return this.#next()
  }

  #fail(expected: string): never {
    throw new RenderingRefusedError(`the template has ${this.#current.value} where ${expected} should be`)
  }

  #nested<T>(parse: () => T): T {
    if (++this.#nesting > SYNTAX_NESTING_MAX)
      throw new RenderingRefusedError('the template is nested too deeply')
    const parsed = parse()
    this.#nesting--
    return parsed
  }

  /** Up to a block that begins with one of these names, which is the current token then. */
  #body(ends: readonly string[]): readonly Node[] {
    const body: Node[] = []
    for (;;) {
      const token = this.#current
      if (token.type === 'data') body.push({ type: 'StringLiteral', value: this.#next().value })
      else if (token.type === 'variableBegin') {
        this.#next()
        body.push(this.#tuple())
        this.#expect('variableEnd')
      } else if (token.type === 'blockBegin') {
        this.#next()
        if (this.#current.type === 'name' && ends.includes(this.#current.value)) return body
        body.push(this.#nested(() => this.#statement()))
        this.#expect('blockEnd')
      } else if (ends.length === 0) return body
      else return this.#fail(ends.join(' or '))
    }
  }

  /** The body of a statement, whose head ends here; the token that ends it stays. */
  #statements(...ends: string[]): readonly Node[] {
    this.#skip('operator', ':')
    this.#expect('blockEnd')
    return this.#body(ends)
  }

  #statementsTo(end: string): readonly Node[] {
    const body = this.#statements(end)
    this.#next()
    return body
  }

  #statement(): Node {
    const { value: name } = this.#expect('name')
    switch (name) {
      case 'if':
        return this.#if()
      case 'for':
        return this.#for()
      case 'set':
        return this.#set()
      case 'with':
        return this.#with()
      case 'macro':
        return {
          type: 'Macro',
          name: this.#name(),
          args: this.#parameters(),
          body: this.#statementsTo('endmacro'),
        }
      case 'call':
        return this.#callBlock()
      case 'filter':
        return {
          type: 'FilterStatement',
          filters: [this.#filterCall(), ...this.#filters()],
          body: this.#statementsTo('endfilter'),
        }
      case 'generation':
        return { type: 'Generation', body: this.#statementsTo('endgeneration') }
      case 'break':
        return { type: 'Break' }
      case 'continue':
        return { type: 'Continue' }
    }
    if (REFUSED_STATEMENTS.has(name)) throw new RenderingRefusedError(`the template uses {% ${name} %}`)
    throw new RenderingRefusedError(`the template has an unknown tag ${name}`)
  }

  #if(): Node {
    const test = this.#tuple({ isConditional: false })
    const body = this.#statements('elif', 'else', 'endif')
    const { value: end } = this.#next()
    let alternate: readonly Node[] = []
    if (end === 'elif') alternate = [this.#nested(() => this.#if())]
    else if (end === 'else') alternate = this.#statementsTo('endif')
    return { type: 'If', test, body, alternate }
  }

  #for(): Node {
    const loopvar = this.#target({ end: 'in' })
    this.#expect('name', 'in')
    const over = this.#tuple({ isConditional: false, end: 'recursive' })
    const test = this.#skip('name', 'if') ? this.#expression() : undefined
    if (this.#is('name', 'recursive')) throw new RenderingRefusedError('the template has a recursive loop')
    const body = this.#statements('endfor', 'else')
    const defaultBlock = this.#next().value === 'endfor' ? [] : this.#statementsTo('endfor')
    const iterable: Node = test === undefined ? over : { type: 'SelectExpression', lhs: over, test }
    return { type: 'For', loopvar, iterable, body, defaultBlock }
  }

  #set(): Node {
    const assignee = this.#target({ mayBeAttribute: true })
    if (this.#skip('operator', '='))
      return { type: 'Set', assignee, value: this.#tuple(), filters: [], body: [] }
    const filters = this.#filters()
    return { type: 'Set', assignee, value: null, filters, body: this.#statementsTo('endset') }
  }

  #with(): Node {
    const bindings: { readonly target: Node; readonly value: Node }[] = []
    while (!this.#is('blockEnd')) {
      if (bindings.length > 0) this.#expect('operator', ',')
      const target = this.#target({})
      this.#expect('operator', '=')
      bindings.push({ target, value: this.#expression() })
    }
    return { type: 'With', bindings, body: this.#statementsTo('endwith') }
  }

  #callBlock(): Node {
    const callerArgs = this.#is('operator', '(') ? this.#parameters() : null
    const call = this.#expression()
    if (call.type !== 'CallExpression') return this.#fail('a call')
    return { type: 'CallStatement', call, callerArgs, body: this.#statementsTo('endcall') }
  }

  #name(): Identifier {
    const { value } = this.#expect('name')
    if (CONSTANTS.has(value)) throw new RenderingRefusedError(`the template assigns to ${value}`)
    return { type: 'Identifier', value }
  }

  /** `(a, b=1)` of a macro. */
  #parameters(): readonly Node[] {
    const parameters: Node[] = []
    this.#expect('operator', '(')
    while (!this.#is('operator', ')')) {
      if (parameters.length > 0) this.#expect('operator', ',')
      const key = this.#name()
      if (parameters.some(other => parameterName(other) === key.value))
        throw new RenderingRefusedError(`the template has two parameters ${key.value}`)
      if (this.#skip('operator', '='))
        parameters.push({ type: 'KeywordArgumentExpression', key, value: this.#expression() })
      else if (parameters.at(-1)?.type === 'KeywordArgumentExpression') this.#fail('a default')
      else parameters.push(key)
    }
    this.#expect('operator', ')')
    return parameters
  }

  #target({ mayBeAttribute = false, end }: { mayBeAttribute?: boolean; end?: string }): Node {
    const one = (): Node => {
      const position = this.#position
      const node = this.#primary()
      if (mayBeAttribute && node.type === 'Identifier' && this.#position === position + 1) {
        if (this.#skip('operator', '.')) {
          const property: Identifier = { type: 'Identifier', value: this.#expect('name').value }
          return { type: 'MemberExpression', object: node, property, computed: false }
        }
      }
      return node
    }
    const target = this.#sequence(one, end, false)
    refuseOtherTargets(target)
    return target
  }

  /** One expression, or several with commas between them, which are a tuple. */
  #tuple({ isConditional = true, end }: { isConditional?: boolean; end?: string } = {}): Node {
    return this.#sequence(() => (isConditional ? this.#expression() : this.#or()), end, false)
  }

  #sequence(parse: () => Node, end: string | undefined, isInParentheses: boolean): Node {
    const items: Node[] = []
    let isTuple = false
    for (;;) {
      if (items.length > 0) this.#expect('operator', ',')
      const isEnd =
        this.#is('variableEnd') ||
        this.#is('blockEnd') ||
        this.#is('operator', ')') ||
        (end !== undefined && this.#is('name', end))
      if (isEnd) break
      items.push(parse())
      if (!this.#is('operator', ',')) break
      isTuple = true
    }
    if (!isTuple && items.length > 0) return items[0]!
    if (!isTuple && !isInParentheses) this.#fail('an expression')
    return { type: 'TupleLiteral', value: items }
  }

  #expression(): Node {
    return this.#nested(() => {
      let node = this.#or()
      while (this.#skip('name', 'if')) {
        const condition = this.#or()
        node = this.#skip('name', 'else')
          ? { type: 'Ternary', condition, trueExpr: node, falseExpr: this.#expression() }
          : { type: 'SelectExpression', lhs: node, test: condition }
      }
      return node
    })
  }

  #or(): Node {
    let left = this.#and()
    while (this.#skip('name', 'or')) left = binary('or', left, this.#and())
    return left
  }

  #and(): Node {
    let left = this.#not()
    while (this.#skip('name', 'and')) left = binary('and', left, this.#not())
    return left
  }

  #not(): Node {
    if (!this.#skip('name', 'not')) return this.#comparison()
    return this.#nested(() => ({
      type: 'UnaryExpression',
      operator: { value: 'not' },
      argument: this.#not(),
    }))
  }

  #comparison(): Node {
    const first = this.#sum()
    const rest: { readonly operator: string; readonly operand: Node }[] = []
    for (;;) {
      let operator: string
      if (this.#current.type === 'operator' && COMPARISONS.has(this.#current.value))
        operator = this.#next().value
      else if (this.#skip('name', 'in')) operator = 'in'
      else if (this.#is('name', 'not') && this.#tokens[this.#position + 1]?.value === 'in') {
        this.#position += 2
        operator = 'not in'
      } else break
      rest.push({ operator, operand: this.#sum() })
    }
    const [only] = rest
    if (only === undefined) return first
    if (rest.length === 1) return binary(only.operator, first, only.operand)
    return { type: 'ComparisonChain', first, rest }
  }

  /** Operators of one rank, from the left. */
  #operation(operators: readonly string[], operand: () => Node): Node {
    let left = operand()
    while (this.#current.type === 'operator' && operators.includes(this.#current.value))
      left = binary(this.#next().value, left, operand())
    return left
  }

  #sum(): Node {
    return this.#operation(['+', '-'], () => this.#concatenation())
  }

  #concatenation(): Node {
    return this.#operation(['~'], () => this.#product())
  }

  #product(): Node {
    return this.#operation(['*', '/', '//', '%'], () => this.#power())
  }

  #power(): Node {
    return this.#operation(['**'], () => this.#unary(true))
  }

  #unary(hasFilters: boolean): Node {
    let node: Node
    if (this.#is('operator', '-') || this.#is('operator', '+')) {
      const operator = { value: this.#next().value }
      node = this.#nested(() => ({ type: 'UnaryExpression', operator, argument: this.#unary(false) }))
    } else node = this.#primary()
    node = this.#postfix(node)
    return hasFilters ? this.#filtered(node) : node
  }

  #primary(): Node {
    const token = this.#current
    switch (token.type) {
      case 'name': {
        this.#next()
        const constant = CONSTANTS.get(token.value)
        if (constant !== undefined) return { type: 'ConstantLiteral', value: constant }
        return { type: 'Identifier', value: token.value }
      }
      case 'string': {
        let value = ''
        while (this.#is('string')) value += this.#next().value
        return { type: 'StringLiteral', value }
      }
      case 'integer':
        return { type: 'IntegerLiteral', value: Number(this.#next().value) }
      case 'float':
        return { type: 'FloatLiteral', value: Number(this.#next().value) }
      case 'operator':
        if (token.value === '(') return this.#nested(() => this.#parenthesized())
        if (token.value === '[') return this.#nested(() => this.#list())
        if (token.value === '{') return this.#nested(() => this.#dict())
    }
    return this.#fail('an expression')
  }

  #parenthesized(): Node {
    this.#next()
    const node = this.#sequence(() => this.#expression(), undefined, true)
    this.#expect('operator', ')')
    return node
  }

  #list(): Node {
    this.#next()
    const value: Node[] = []
    while (!this.#skip('operator', ']')) {
      if (value.length > 0) this.#expect('operator', ',')
      if (this.#skip('operator', ']')) break
      value.push(this.#expression())
    }
    return { type: 'ArrayLiteral', value }
  }

  #dict(): Node {
    this.#next()
    const value = new Map<Node, Node>()
    while (!this.#skip('operator', '}')) {
      if (value.size > 0) this.#expect('operator', ',')
      if (this.#skip('operator', '}')) break
      const key = this.#expression()
      this.#expect('operator', ':')
      value.set(key, this.#expression())
    }
    return { type: 'ObjectLiteral', value }
  }

  /** Members, items and calls. */
  #postfix(node: Node): Node {
    let object = node
    for (;;) {
      if (this.#skip('operator', '.')) object = this.#attribute(object)
      else if (this.#skip('operator', '[')) object = this.#subscript(object)
      else if (this.#is('operator', '(')) object = this.#call(object)
      else return object
    }
  }

  #attribute(object: Node): Node {
    const token = this.#next()
    if (token.type === 'name') {
      const property: Node = { type: 'Identifier', value: token.value }
      return { type: 'MemberExpression', object, property, computed: false }
    }
    if (token.type !== 'integer') this.#fail('a name or a number')
    const property: Node = { type: 'IntegerLiteral', value: Number(token.value) }
    return { type: 'MemberExpression', object, property, computed: true }
  }

  #subscript(object: Node): Node {
    const property = this.#subscripted()
    if (this.#is('operator', ',')) throw new RenderingRefusedError('the template has a tuple as an index')
    this.#expect('operator', ']')
    return { type: 'MemberExpression', object, property, computed: true }
  }

  #subscripted(): Node {
    const part = (): Node | undefined =>
      this.#is('operator', ':') || this.#is('operator', ']') || this.#is('operator', ',')
        ? undefined
        : this.#expression()
    const start = part()
    if (!this.#skip('operator', ':')) return start ?? this.#fail('an index')
    const stop = part()
    const step = this.#skip('operator', ':') ? part() : undefined
    return { type: 'SliceExpression', start, stop, step }
  }

  #call(callee: Node): CallNode {
    return { type: 'CallExpression', callee, args: this.#arguments() }
  }

  #arguments(): readonly Node[] {
    const args: Node[] = []
    this.#expect('operator', '(')
    const has = (...types: Node['type'][]) => args.some(({ type }) => types.includes(type))
    while (!this.#skip('operator', ')')) {
      if (args.length > 0) this.#expect('operator', ',')
      if (this.#skip('operator', ')')) break
      if (this.#skip('operator', '*')) {
        if (has('SpreadExpression', 'KeywordSpreadExpression')) this.#fail('the end of the arguments')
        args.push({ type: 'SpreadExpression', argument: this.#expression() })
      } else if (this.#skip('operator', '**')) {
        if (has('KeywordSpreadExpression')) this.#fail('the end of the arguments')
        args.push({ type: 'KeywordSpreadExpression', argument: this.#expression() })
      } else if (this.#is('name') && this.#tokens[this.#position + 1]?.value === '=') {
        if (this.#tokens[this.#position + 1]!.type !== 'operator' || has('KeywordSpreadExpression'))
          this.#fail('the end of the arguments')
        const key: Identifier = { type: 'Identifier', value: this.#next().value }
        this.#next()
        if (args.some(arg => arg.type === 'KeywordArgumentExpression' && arg.key.value === key.value))
          throw new RenderingRefusedError(`the template gives ${key.value} twice`)
        args.push({ type: 'KeywordArgumentExpression', key, value: this.#expression() })
      } else {
        if (has('SpreadExpression', 'KeywordSpreadExpression', 'KeywordArgumentExpression'))
          this.#fail('the name of an argument')
        args.push(this.#expression())
      }
    }
    return args
  }

  /** Filters, tests, and calls of what they give. */
  #filtered(node: Node): Node {
    let operand = node
    for (;;) {
      if (this.#skip('operator', '|'))
        operand = { type: 'FilterExpression', operand, filter: this.#filterCall() }
      else if (this.#skip('name', 'is')) operand = this.#test(operand)
      else if (this.#is('operator', '(')) operand = this.#call(operand)
      else return operand
    }
  }

  /** `| a | b(1)`, without what they are applied to. */
  #filters(): readonly FilterCall[] {
    const filters: FilterCall[] = []
    while (this.#skip('operator', '|')) filters.push(this.#filterCall())
    return filters
  }

  #filterCall(): FilterCall {
    const name = this.#dottedName()
    return { name, args: this.#is('operator', '(') ? this.#arguments() : [] }
  }

  #dottedName(): string {
    let { value: name } = this.#expect('name')
    while (this.#skip('operator', '.')) name += `.${this.#expect('name').value}`
    return name
  }

  #test(operand: Node): Node {
    const negate = this.#skip('name', 'not')
    const name = this.#dottedName()
    const { type, value } = this.#current
    let args: readonly Node[] = []
    if (type === 'operator' && value === '(') args = this.#arguments()
    else if (
      (type === 'name' && !['else', 'or', 'and'].includes(value)) ||
      type === 'string' ||
      type === 'integer' ||
      type === 'float' ||
      (type === 'operator' && (value === '[' || value === '{'))
    ) {
      if (type === 'name' && value === 'is') throw new RenderingRefusedError('the template chains tests')
      args = [this.#postfix(this.#primary())]
    }
    return { type: 'TestExpression', operand, negate, name, args }
  }
}

function binary(operator: string, left: Node, right: Node): Node {
  return { type: 'BinaryExpression', operator: { value: operator }, left, right }
}

function parameterName(parameter: Node): string | undefined {
  if (parameter.type === 'KeywordArgumentExpression') return parameter.key.value
  return parameter.type === 'Identifier' ? parameter.value : undefined
}

function refuseOtherTargets(target: Node): void {
  if (target.type === 'TupleLiteral') for (const part of target.value) refuseOtherTargets(part)
  else if (target.type !== 'Identifier' && target.type !== 'MemberExpression')
    throw new RenderingRefusedError(`the template assigns to a ${target.type}`)
}
