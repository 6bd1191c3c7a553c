/** The arithmetic of credit in float64: the definitions of `mingce/specs`, by name, and what the page adds to them.
 *
 * A column is a list of rows, a row a list of numbers; a mask holds 1 where the policy chose the token. Slots behind the
 * mask are stepped over and come out as 0, so nothing behind it can change a number in front of it.
 */
import { fsum } from "./python";
import type { Settings } from "./specs.generated";
import { chosen as chosenSlots, ESTIMATE, ESTIMATORS as SPECS, KL, members_of, POLICY_LOSS, POLICY_LOSSES, zeros as zerosLike } from "./specs.generated";

export type Row = readonly number[];
export type Column = readonly Row[];
export type Matrix = number[][];

export interface Credit {
  advantages: Matrix;
  deltas: Matrix | null; // estimators without a critic have neither
  returns: Matrix | null;
}

export interface Moments {
  count: number;
  mean: number;
  variance: number;
}

/** One line of the table of estimators (mingce/specs/estimators.py). */
export interface EstimatorSpec {
  kind: "recursion" | "window" | "share" | "group";
  zh: string;
  en: string;
  formula: string;
  inputs: readonly string[];
  settings: readonly string[];
  fixed_lambda: number | null;
  whitens: boolean;
}

const FLOAT32_EPS = 2 ** -23;
const EPSILON = 1e-8;

const zeros: (mask: Column) => Matrix = zerosLike;

/** The slots of a row that the policy chose. */
export const chosen: (mask: Row) => number[] = chosenSlots;

const sum: (numbers: Row) => number = fsum;

const lookUp = <T>(table: Readonly<Record<string, T>>, name: string): T | null =>
  Object.hasOwn(table, name) ? table[name] : null;

// ── KL and rewards ────────────────────────────────────────────────────────────────────────────────────────────────

/** The named kind of KL for one token, x = log π − log π_ref; NaN for a kind that is not known here. */
export function klPenalty(logProb: number, refLogProb: number, name = "k1", clamp: number | null = null): number {
  const kind = lookUp<(x: number) => number>(KL, name.replace(/\+$/, ""));
  const value = kind ? kind(logProb - refLogProb) : NaN;
  return clamp === null ? value : Math.min(Math.max(value, -clamp), clamp);
}

/** r_t = score_t − β·k_t. */
export function klRewards(scores: Column, kl: Column, mask: Column, beta: number): Matrix {
  return mask.map((row, b) => row.map((m, t) => (m ? scores[b][t] - beta * kl[b][t] : 0)));
}

// ── by name ───────────────────────────────────────────────────────────────────────────────────────────────────────

export type Estimator = keyof typeof SPECS;
export const ESTIMATORS = Object.keys(SPECS) as Estimator[];

/** What an estimator reads, by column; `after` is the value after each row's last token. */
export interface Batch {
  rewards: Column;
  mask: Column;
  values?: Column;
  after?: Row;
  group?: readonly unknown[];
  attention?: Column;
}

export interface CreditSettings {
  gamma: number;
  lam: number;
  n?: number;
  k?: number;
}

/** The table's line of an estimator; null for one that is not known here, such as a person's own. */
export const specOf = (name: string | null): EstimatorSpec | null =>
  name === null ? null : lookUp<EstimatorSpec>(SPECS, name);

const SYMBOLS = { gamma: "γ", lam: "λ", n: "n", k: "k" } as const;

/** Symbol and value of the settings that the estimator reads; of an unknown one, those that are known. */
export function settingsRead(settings: Settings): [string, number | null][] {
  const spec = specOf(settings.estimator);
  return (Object.keys(SYMBOLS) as (keyof typeof SYMBOLS)[])
    .filter((key) => (spec ? spec.settings.includes(key) : settings[key] !== null))
    .map((key) => [SYMBOLS[key], settings[key]]);
}

export const needsCritic = (name: string): boolean => !!specOf(name)?.inputs.includes("values");

/** The λ of GAE that the estimator amounts to, or null when it is not a sum of TD errors; a window counts as λ = 1. */
export function effectiveLambda(name: string, lam: number): number | null {
  const spec = specOf(name);
  if (!spec) return null;
  if (spec.settings.includes("lam")) return lam;
  return spec.kind === "window" ? 1 : needsCritic(name) ? spec.fixed_lambda : null;
}

export function estimate(name: Estimator, batch: Batch, settings: CreditSettings): Credit {
  const { rewards, mask } = batch;
  const spec = SPECS[name] as EstimatorSpec;
  const columns: Record<string, unknown> = {
    rewards,
    response_mask: mask,
    values: batch.values ?? zeros(mask),
    group: batch.group ?? mask.map(() => 0),
    attention_weights: batch.attention ?? zeros(mask),
  };
  const defaults: Record<string, unknown> = { n: 5, k: 3 };
  const inputs = spec.inputs.map((input) => columns[input]);
  const numbers = spec.settings.map((key) => settings[key as keyof CreditSettings] ?? defaults[key]);
  const result = ESTIMATE[name](...inputs, ...numbers, ...(needsCritic(name) ? [batch.after ?? null] : []));
  return Array.isArray(result) ? { advantages: result, deltas: null, returns: null } : result;
}

/** Each row's total reward and what its group's totals look like; rows without a chosen token are in no group. */
export function groupTotals(rewards: Column, mask: Column, group: readonly unknown[]) {
  return mask.map((row, b) => {
    const rows = mask.flatMap((_, i) => (group[i] === group[b] ? [i] : []));
    const { totals, mean, std } = members_of(rewards, mask, rows);
    return { total: sum(chosen(row).map((t) => rewards[b][t])), mean, std, size: totals.length as number };
  });
}

// ── whitening ─────────────────────────────────────────────────────────────────────────────────────────────────────

/** Mean and variance (with Bessel's n − 1) over the chosen tokens; mere rounding noise counts as no variance. */
export function moments(values: Column, mask: Column): Moments {
  const numbers = mask.flatMap((row, b) => chosen(row).map((t) => values[b][t]));
  const count = numbers.length;
  if (count === 0) return { count, mean: 0, variance: 0 };
  const mean = sum(numbers) / count;
  const variance = count < 2 ? 0 : sum(numbers.map((x) => (x - mean) ** 2)) / (count - 1);
  return { count, mean, variance: variance > (FLOAT32_EPS * Math.abs(mean)) ** 2 ? variance : 0 };
}

/** (A − μ)/√(σ² + 10⁻⁸), over the batch itself or with the moments of a larger one. */
export function whiten(values: Column, mask: Column, given?: Moments): Matrix {
  const { mean, variance } = given ?? moments(values, mask);
  const scale = variance > 0 ? 1 / Math.sqrt(variance + EPSILON) : 0;
  return mask.map((row, b) => row.map((m, t) => (m ? (values[b][t] - mean) * scale : 0)));
}

// ── losses ────────────────────────────────────────────────────────────────────────────────────────────────────────

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
  const spec = lookUp(POLICY_LOSSES, name);
  if (!spec) return null;
  const chosenSettings = spec.settings.map((key) => settings[key] ?? null);
  if (spec.settings.some((key, i) => key !== "dual_clip" && chosenSettings[i] === null)) return null;
  return POLICY_LOSS[name](old, fresh, advantages, mask, ...chosenSettings);
}

/** ½·max of the squared errors with and without the clip. */
export function valueTerm(
  newValue: number,
  target: number,
  value: number,
  clip: number | null = 0.5,
): { near: number; loss: number; clipped: boolean } {
  const plain = (newValue - target) ** 2;
  if (clip === null) return { near: newValue, loss: plain / 2, clipped: false };
  const near = Math.min(value + clip, Math.max(value - clip, newValue));
  const limited = (near - target) ** 2;
  return { near, loss: Math.max(plain, limited) / 2, clipped: limited > plain };
}

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
    const mean = sum(numbers) / numbers.length;
    return sum(numbers.map((x) => (x - mean) ** 2)) / (numbers.length - 1);
  });
}
