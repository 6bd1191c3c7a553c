/** The definitions of `mingce/specs` by name, and what the page draws of them.
 *
 * A column is a list of rows, a row a list of numbers; a mask holds 1 where the policy chose the token. Slots behind the
 * mask are stepped over and come out as 0, so nothing behind it can change a number in front of it.
 */
import { fsum } from "./python";
import * as specs from "./specs.generated";
import type { Settings } from "./types";

export type Row = readonly number[];
export type Column = readonly Row[];
export type Matrix = number[][];

export interface Credit {
  advantages: Matrix;
  deltas: Matrix | null; // estimators without a critic have neither
  returns: Matrix | null;
}

/** One line of the table of estimators (mingce/specs/estimators.py). */
export interface EstimatorSpec {
  kind: "recursion" | "window" | "turns" | "share" | "group";
  zh: string;
  en: string;
  formula: string;
  inputs: readonly string[];
  settings: readonly string[];
  fixed_lambda: number | null;
  whitens: boolean;
}

/** The slots of a row that the policy chose. */
export const chosen: (mask: Row) => number[] = specs.chosen;

const lookUp = <T>(table: Readonly<Record<string, T>>, name: string): T | null =>
  Object.hasOwn(table, name) ? table[name] : null;

/** The named kind of KL for one token, x = log π − log π_ref; NaN for a kind that is not known here. */
export function klPenalty(logProb: number, refLogProb: number, name = "k1", clamp: number | null = null): number {
  const kind = lookUp<(x: number) => number>(specs.KL, name.replace(/\+$/, ""));
  return specs.limited(kind ? kind(logProb - refLogProb) : NaN, clamp);
}

export const klRewards: (scores: Column, kl: Column, mask: Column, beta: number) => Matrix = specs.kl_rewards;

// ── estimators ────────────────────────────────────────────────────────────────────────────────────────────────────

export type Estimator = keyof typeof specs.ESTIMATORS;
export const ESTIMATORS = Object.keys(specs.ESTIMATORS) as Estimator[];

/** What an estimator reads, by column; `after` is the value after each row's last token. */
export interface Batch {
  rewards: Column;
  mask: Column;
  values?: Column;
  after?: Row;
  group?: readonly unknown[];
  attention?: Column;
  turn?: Column;
  /** Numbers of a row by name, the same for all rows of a prompt. */
  rowInputs?: Readonly<Record<string, number | null>>;
}

export interface CreditSettings {
  gamma: number;
  lam: number;
  n?: number;
  k?: number;
}

/** The table's line of an estimator; null for one that is not known here, such as a person's own. */
export const specOf = (name: string | null): EstimatorSpec | null =>
  name === null ? null : lookUp<EstimatorSpec>(specs.ESTIMATORS, name);

const SYMBOLS = { gamma: "γ", lam: "λ", n: "n", k: "k" } as const;

/** Symbol and value of the settings that the estimator reads; of an unknown one, those that are known. */
export function settingsRead(settings: Settings): [string, number | null][] {
  const spec = specOf(settings.estimator);
  return (Object.keys(SYMBOLS) as (keyof typeof SYMBOLS)[])
    .filter((key) => (spec ? spec.settings.includes(key) : settings[key] !== null))
    .map((key) => [SYMBOLS[key], settings[key]]);
}

const needsCritic = (spec: EstimatorSpec): boolean => spec.inputs.includes("values");

/** The λ of a sum of discounted TD errors, 1 where it has none; null for an estimator that is no such sum. */
export function effectiveLambda(name: string, lam: number): number | null {
  const spec = specOf(name);
  return spec && needsCritic(spec) && !spec.inputs.includes("turn") ? (specs.effective_lambda(spec, lam) ?? 1) : null;
}

export function estimate(name: Estimator, batch: Batch, settings: CreditSettings): Credit {
  const { rewards, mask } = batch;
  const spec = specs.ESTIMATORS[name] as EstimatorSpec;
  const columns: Record<string, unknown> = {
    rewards,
    response_mask: mask,
    values: batch.values ?? specs.zeros(mask),
    group: batch.group ?? mask.map(() => 0),
    attention_weights: batch.attention ?? specs.zeros(mask),
    turn: batch.turn ?? specs.zeros(mask),
  };
  for (const [input, x] of Object.entries(batch.rowInputs ?? {})) columns[input] = mask.map(() => x ?? 0);
  const inputs = spec.inputs.map((input) => columns[input]);
  const numbers = spec.settings.map((key) => settings[key as keyof CreditSettings]);
  const result = specs.ESTIMATE[name](...inputs, ...numbers, ...(needsCritic(spec) ? [batch.after ?? null] : []));
  return Array.isArray(result) ? { advantages: result, deltas: null, returns: null } : result;
}

// ── whitening and losses ──────────────────────────────────────────────────────────────────────────────────────────

export interface Moments {
  count: number;
  mean: number;
  variance: number;
}

export function moments(values: Column, mask: Column): Moments {
  const count = mask.reduce((sum, row) => sum + chosen(row).length, 0);
  return { count, mean: specs.masked_mean(values, mask), variance: specs.masked_var(values, mask) };
}

/** Over the batch itself or with the moments of a larger one. */
export function whiten(values: Column, mask: Column, given?: Moments): Matrix {
  const { mean, variance } = given ?? moments(values, mask);
  return specs.standardise(values, mask, mean, variance);
}

export interface PolicyTerm {
  ratio: number;
  loss: number;
  clipped?: boolean;
  dual_clipped?: boolean;
}

/** The terms of a row's chosen tokens by the named policy loss; null for one that is not known here. */
export function policyTerms(
  name: string,
  old: Row,
  fresh: Row,
  advantages: Row,
  mask: Row,
  settings: Readonly<Record<string, unknown>>,
): Record<number, PolicyTerm> | null {
  const spec = lookUp(specs.POLICY_LOSSES, name);
  if (!spec) return null;
  const numbers = spec.settings.map((key) => settings[key] ?? null);
  if (spec.settings.some((key, i) => key !== "dual_clip" && numbers[i] === null)) return null;
  return specs.POLICY_LOSS[name](old, fresh, advantages, mask, ...numbers);
}

export const valueTerm: (...numbers: [guess: number, target: number, value: number, clip: any]) => { loss: number; clipped: boolean } =
  specs.value_term;

// ── where credit comes from ───────────────────────────────────────────────────────────────────────────────────────

/** What token `later` pays to token `earlier` (places among the chosen tokens): (γλ)^l δ_later, l steps apart. */
export function creditTerm(deltas: Row, earlier: number, later: number, decay: number, reach = Infinity): number {
  const distance = later - earlier;
  return distance < 0 || distance >= reach ? 0 : decay ** distance * deltas[later];
}

/** Variance over the rows at each slot, over the rows that chose a token there; null where fewer than two did. */
export function varianceOverRows(values: Column, mask: Column): (number | null)[] {
  const width = Math.max(0, ...mask.map((row) => row.length));
  return Array.from({ length: width }, (_, t) => {
    const numbers = mask.flatMap((row, b) => (row[t] ? [values[b][t]] : []));
    if (numbers.length < 2) return null;
    const mean = fsum(numbers) / numbers.length;
    return fsum(numbers.map((x) => (x - mean) ** 2)) / (numbers.length - 1);
  });
}
