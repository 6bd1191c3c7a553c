/** What the server says, as the page reads it. Numbers that are not finite arrive as null. */

import type { Settings } from "./specs.generated";
export type { Settings };

export type Num = number | null;
export type Lang = "zh" | "en";
export type Both = Record<Lang, string>;
export type Level = "child" | "engineer" | "proof";
export type Status = "training" | "finished" | "stopped";

export interface RunSummary {
  id: string;
  name: string;
  path: string;
  status: Status;
  steps: number;
  total_steps: number | null;
  kind?: "run" | "dump";
  message?: string | null;
  last_score: Num;
  spark: Num[];
  estimator: string | null;
  lang: string | null;
  updated: number | string | null;
}

export interface MetricText extends Both {
  name: string;
  group: string;
  formula: string;
  formula_zh: string;
}

export interface Damage {
  file: string;
  why: string;
}

/** Lines of a log that could not be read: how many, and the first of them. */
export interface SkippedLines {
  file: string;
  count: number;
  lines: number[];
}

/** What happened besides steps; a restart says why. */
export interface RunEvent {
  step: number;
  kind: string;
  why?: string;
  time?: number;
}

export interface Run {
  id: string;
  name: string;
  status: Status;
  config: Record<string, unknown>;
  steps: number[];
  series: Record<string, Num[]>;
  metrics: MetricText[];
  ledger_steps: number[];
  damaged: Damage[];
  skipped?: SkippedLines[];
  /** Of so many steps the least and the greatest value stand in the series; 1 when all are there. */
  every: number;
  events?: RunEvent[];
  kind?: "run" | "dump";
  message?: string | null;
}

export interface RolloutLine {
  row: number;
  uid: string;
  group: string;
  score: Num;
  parts: Record<string, number> | null;
  kl: Num;
  length: number;
  finish_reason: string | null;
  max_abs_advantage: Num;
  prompt: string;
  response: string;
  best: boolean;
  worst: boolean;
}

export interface Histogram {
  edges: number[];
  counts: number[];
  of?: "rollout" | "token";
}

export interface Whitening {
  mean: number;
  std: number;
  variance?: number;
  count: number;
}

export interface Step {
  step: number;
  rollouts: RolloutLine[];
  /** The names of the parts of a score, and of the ways to end. */
  parts: string[];
  endings: string[];
  histograms: Record<string, Histogram>;
  groups: { group: string; size?: number; mean?: Num; best_row: number; worst_row: number }[];
  shown?: number;
  total?: number;
  settings: Settings;
  whitening: Whitening | null;
}

export interface Token {
  id: number;
  text: string;
  /** Equal for the pieces that together form one character. */
  glyph?: number;
  special?: boolean;
}

export type Columns = Record<string, Num[]>;

export interface Sibling {
  row: number;
  score: Num;
  response?: string;
  scores?: Num[];
  kl?: Num[];
  rewards: Num[];
  values?: Num[] | null;
  response_mask: Num[];
  bootstrap?: Num;
}

export interface Rollout {
  step: number;
  row: number;
  uid: string;
  group: string;
  prompt: string;
  prompt_tokens: Token[];
  tokens: Token[];
  columns: Columns;
  info: Record<string, unknown>;
  settings: Settings;
  whitening: Whitening | null;
  siblings: Sibling[];
  siblings_left_out?: number;
  /** The rollout is longer than what is shown. */
  more_tokens?: boolean;
  bootstrap?: Num;
}

export interface Answer {
  step: number;
  row: number;
  score: Num;
  response: string;
  tokens: Token[];
  columns: Columns;
}

export interface Through {
  prompt?: string;
  answers?: Answer[];
  left_out?: number;
  /** Steps that were not looked through, of a run that has too many. */
  steps_left_out?: number;
  prompts?: { prompt: string; answers: number; steps: number; step: number; row: number }[];
}

export interface ColumnText extends Both {
  name: string;
  symbol: string;
  alignment: "action" | "state" | "row";
  formula: string;
  formula_zh: string;
  long_zh: string;
  long_en: string;
}

/** One paragraph of a token's account; {names} are filled with this token's numbers. */
export interface Section {
  id: string;
  title: Both;
  estimators: string[] | null;
  /** Shown when all of `needs` and none of `lacks` have a value for this token. */
  needs: string[];
  lacks?: string[];
  formula: string;
  numbers: string;
  words: Record<Level, Both>;
  losses?: string[] | null;
  /** One more sentence, for this token's own case. */
  case_of?: string | null;
  cases?: Record<string, Both> | null;
}

export interface Texts {
  columns: ColumnText[];
  account: Section[];
  settings?: ({ symbol: string; name: string } & Both)[];
}

export interface Place {
  row: number | null;
  token: number | null;
  label: string | null;
  expected: number | string | null;
  found: number | string | null;
}

export interface Finding {
  code: string;
  severity: "bug" | "suspicious" | "convention" | "note";
  column: string;
  title: Both;
  cause: Both;
  change: Both;
  formula: string;
  link: string;
  share: number | string;
  places: Place[];
}

export interface Audit {
  step: number | null;
  rows: number;
  tokens: number;
  verdict: Both;
  counts: Record<string, number>;
  findings: Finding[];
  settings: Record<string, { value: unknown; inferred: boolean }>;
  checks: { name: string; title: Both }[];
  skipped: { name: string; title: Both; missing: string[] }[];
}

export interface SeedExample {
  id?: string;
  seed: string;
  note?: string;
  prompt?: string;
  response?: string;
  tokens?: string[];
  given?: Record<string, number | number[]>;
  expect?: Record<string, number[]>;
  seed_claims?: string | Record<string, number | number[]>;
  right?: string | Record<string, number | number[]>;
  why?: string;
}

export interface Playground {
  examples: SeedExample[];
  errata: SeedExample[];
}
