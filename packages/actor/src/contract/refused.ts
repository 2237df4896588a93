/** Stands where a type may not be; no value has it. */
export interface Refused<Why extends string> {
  readonly [refused]: Why
}
declare const refused: unique symbol
