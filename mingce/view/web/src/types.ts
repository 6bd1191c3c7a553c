// Written by scripts/make_page_specs.py from mingce/view (answers, over_run, taught); then `make web`.
// What the server says. Numbers that are not finite arrive as null.

/** A run in the list of runs; `message` says why nothing of it can be shown. */
export interface RunSummary {
  id: string;
  name: string;
  path: string;
  kind: "run" | "dump";
  status: "training" | "finished" | "stopped";
  message: string | null;
  steps: number;
  total_steps: number | null;
  last_score: number | null;
  spark: (number | null)[];
  estimator: string | null;
  lang: string | null;
  updated: number;
}

/** What a metric means; measured ones have no formula. */
export interface MetricText {
  name: string;
  group: string;
  zh: string;
  en: string;
  formula: string;
  formula_zh: string;
  columns: string[];
}

/** A run with its numbers over the steps; of every `every` steps the least and the greatest stand in the series. */
export interface Run {
  id: string;
  name: string;
  path: string;
  kind: "run" | "dump";
  status: "training" | "finished" | "stopped";
  message: string | null;
  total_steps: number | null;
  config: Record<string, unknown>;
  steps: number[];
  every: number;
  series: Record<string, (number | null)[]>;
  metrics: MetricText[];
  ledger_steps: number[];
  validation_steps: number[];
  damaged: Damage[];
  skipped: Skipped[];
  events: RunEvent[];
}

/** A file that could not be read, and why. */
export interface Damage {
  file: string;
  why: string;
}

/** How many lines of a file were left out, and the numbers of the first. */
export interface Skipped {
  file: string;
  count: number;
  lines: number[];
}

/** What happened besides steps; an audit counts what it found. */
export interface RunEvent {
  step: number;
  kind: string;
  why?: string;
  time?: number | null;
  bugs?: number | null;
  suspicious?: number | null;
}

/** A rollout in the table of its step, texts cut short; `best` and `worst` of its group. */
export interface RolloutLine {
  row: number;
  uid: string | null;
  group: string | null;
  score: number | null;
  parts: Record<string, number | null> | null;
  kl: number | null;
  length: number;
  finish_reason: string | null;
  max_abs_advantage: number | null;
  data_source: string | null;
  prompt: string;
  question: string;
  response: string;
  best: boolean;
  worst: boolean;
}

/** The samples of one prompt. */
export interface Group {
  group: string;
  size: number;
  mean: number;
  best_row: number;
  worst_row: number;
}

/** Counts between edges; numbers that are not finite are counted as dropped. */
export interface Histogram {
  edges: number[];
  counts: number[];
  dropped: number;
  of: "rollout" | "token";
}

/** A screenful of a step's rollouts: `shown` of `total` are what was asked for, from `offset` on. */
export interface Table {
  step: number;
  rollouts: RolloutLine[];
  offset: number;
  shown: number;
  total: number;
  groups: Group[];
}

/** A step's first rollouts, how its numbers are spread, the names of the parts of a score, endings and data sources. */
export interface Step {
  step: number;
  rollouts: RolloutLine[];
  offset: number;
  shown: number;
  total: number;
  groups: Group[];
  histograms: Record<string, Histogram> | null;
  parts: string[];
  endings: string[];
  data_sources: string[];
  settings: AccountSettings;
  whitening: Whitening | null;
}

/** What credit, KL and losses of one step were computed with. */
export interface AccountSettings {
  estimator: string | null;
  gamma: number | null;
  lam: number | null;
  n: number | null;
  k: number | null;
  truncation: string | null;
  beta: number | null;
  kl_estimator: string | null;
  kl_clamp: number | null;
  whiten: boolean | null;
  policy_loss: string | null;
  clip_low: number | null;
  clip_high: number | null;
  dual_clip: number | null;
  value_clip: number | null;
}

/** Mean and spread of the raw advantages over all tokens of the step that enter the losses. */
export interface Whitening {
  mean: number;
  std: number;
  variance: number;
  count: number;
  epsilon: number;
}

/** A column that the step could have and was not recorded, and the line that would record it. */
export interface MissingColumn {
  name: string;
  line: Both;
}

/** A text in both languages. */
export interface Both {
  zh: string;
  en: string;
}

/** A rollout of a step with every token's account; None where its numbers are such that none can be computed. */
export interface OpenRollout {
  prompt: string;
  response: string;
  tokens: Token[];
  columns: Record<string, (number | null)[]>;
  settings: AccountSettings;
  step: number;
  row: number;
  uid: string | null;
  group: string | null;
  has_texts: boolean;
  prompt_tokens: Token[];
  conversation: Part[];
  question: string;
  observations: Observation[];
  info: Info;
  bootstrap: number;
  row_inputs: Record<string, number | null>;
  whitening: Whitening | null;
  siblings: Sibling[];
  siblings_left_out: number;
  segments: number[];
  clocks: RowClock[];
  more_tokens: boolean;
  rows: number;
  account: RowAccount | null;
  missing: MissingColumn[];
}

/** One token as people read it; the pieces of one character have the same glyph. */
export interface Token {
  id: number;
  text: string;
  glyph: number;
  special?: boolean;
}

/** A piece of a prompt: one turn's text, the template's own, or a text of nobody's; `tokens` if they are known. */
export interface Part {
  role: string;
  text: string;
  tokens: number | null;
}

/** Tokens of a response, from `start` to before `end`, that the policy did not choose; `role` is "" if unknown. */
export interface Observation {
  start: number;
  end: number;
  role: string;
}

/** What is known of a rollout besides its tokens. */
export interface Info {
  score: number | null;
  score_parts: Record<string, unknown> | null;
  finish_reason: string | null;
  truncated: boolean;
  bootstrap_value: number | null;
  temperature: number | null;
  policy_version: number | null;
  data_source: string | null;
}

/** Another sample of the same prompt, or the rollout itself among them. */
export interface Sibling {
  row: number;
  score: number | null;
  response: string;
  columns: Record<string, (number | null)[]>;
  bootstrap: number;
}

/** When the turns of a row were decoded and its environment stepped, in seconds since the rollouts began. */
export interface RowClock {
  row: number;
  turns: TurnClock[];
}

/** One turn of a row: when it was decoded, and when the environment stepped; None where it did not. */
export interface TurnClock {
  turn: number;
  decoded_from: number;
  decoded_to: number;
  stepped_from: number | null;
  stepped_to: number | null;
}

/** Every token's account in numbers. A fact is shared by all chosen tokens, or a column, or a list of its own. */
export interface RowAccount {
  shared: Record<string, number | string | null>;
  columns: Record<string, string>;
  exceptions: Record<string, Record<number, number | null>>;
  lists: Record<string, (number | null)[]>;
  choices: [number, string][][];
  choice: number[];
  disagreeing: Record<string, number[]>;
  float32: boolean;
}

/** One answer to a prompt, at some step. */
export interface Answer {
  step: number;
  row: number;
  score: number | null;
  finish_reason: string | null;
  response: string;
  tokens: Token[];
  columns: Record<string, (number | null)[]>;
}

/** The answers to one prompt over the steps; `steps_left_out` were not looked through, for there are too many. */
export interface Through {
  prompt: string;
  question: string;
  answers: Answer[];
  left_out: number;
  steps_left_out: number;
}

/** A prompt that came again, with the first place where it stands. */
export interface Recurring {
  prompt: string;
  question: string;
  answers: number;
  steps: number;
  step: number;
  row: number;
}

/** The prompts that came in most steps. */
export interface Prompts {
  prompts: Recurring[];
  steps_left_out: number;
}

/** What a column means. */
export interface ColumnText {
  name: string;
  symbol: string;
  alignment: string;
  formula: string;
  formula_zh: string;
  zh: string;
  en: string;
  long_zh: string;
  long_en: string;
}

/** What a setting of the account means. */
export interface SettingText {
  symbol: string;
  name: string;
  zh: string;
  en: string;
}

/** One paragraph of a token's account; {names} are filled with the token's facts. */
export interface SectionText {
  id: string;
  title: Both;
  formula: string;
  numbers: string;
  words: Record<string, Both>;
  needs: string[];
  lacks: string[];
  estimators: string[] | null;
  losses: string[] | null;
  case_of: string | null;
  cases: Record<string, Both>;
  result: string | null;
  column: string | null;
}

/** Everything the page says about columns, settings and a token's account. */
export interface Texts {
  columns: ColumnText[];
  settings: SettingText[];
  account: SectionText[];
}

/** Where a finding shows. */
export interface Place {
  row: number | null;
  token: number | null;
  label: string | null;
  expected: number | string | null;
  found: number | string | null;
}

/** What the audit found. */
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

/** A check that ran. */
export interface Check {
  name: string;
  title: Both;
}

/** A check that could not run, for these columns or settings are missing. */
export interface SkippedCheck {
  name: string;
  title: Both;
  missing: string[];
}

/** What independent code says about one step. */
export interface Audit {
  step: number | null;
  rows: number;
  tokens: number;
  verdict: Both;
  counts: Record<string, number>;
  findings: Finding[];
  checks: Check[];
  skipped: SkippedCheck[];
}

/** A worked example of the seeds, or one of their slips. */
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

/** The seeds' worked examples and their slips. */
export interface Playground {
  examples: SeedExample[];
  errata: SeedExample[];
}

/** A token with a large number, and the text around it. */
export interface WorstToken {
  step: number;
  row: number;
  token: number;
  value: number;
  question: string;
  before: string;
  text: string;
  after: string;
}

/** The tokens with the largest numbers by one of `measures`; `seen` of `total` rollouts, or steps, were read. */
export interface WorstTokens {
  by: string;
  measures: string[];
  tokens: WorstToken[];
  seen: number;
  total: number;
}

/** A rollout whose response, or else prompt, has the text that was looked for. */
export interface Hit {
  row: number;
  question: string;
  before: string;
  match: string;
  after: string;
  in_response: boolean;
}

/** The first of a step's hits, and how many it has. */
export interface StepHits {
  step: number;
  count: number;
  hits: Hit[];
}

/** The hits of `seen` steps, the newest first; `left` steps were not read, and `next` goes on before that step. */
export interface SearchResult {
  text: string;
  steps: StepHits[];
  seen: number;
  left: number;
  next: number | null;
}

/** A claim of the question, its verdict (right, wrong, half, near) and that verdict in words. */
export interface Judged {
  quote: string;
  verdict: string;
  label: string;
  reason: string;
}

/** A table of an answer; `texts` are the columns without numbers, a heading's second line is a symbol. */
export interface Grid {
  headings: string[];
  rows: string[][];
  texts: number[];
}

/** Where a function stands in mingce's files. */
export interface CodePlace {
  file: string;
  line: number;
  name: string;
}

/** A topic that can be opened. */
export interface Choice {
  topic: string;
  title: string;
}

/** The tutor's answer; `token` is the one it is about, `action` what was asked for that the page does not do. */
export interface Taught {
  lang: string;
  title: string;
  judgements: Judged[];
  about: string;
  text: string;
  formula: string;
  lines: string[];
  tables: Grid[];
  code: CodePlace[];
  peers: string;
  choices: Choice[];
  token: number;
  action: string;
  declined: boolean;
}

/** How many sentences of a text are what. */
export interface Counts {
  wrong: number;
  right: number;
  unverified: number;
}

/** A text sentence by sentence, and the same as a page of its own in both languages. */
export interface Checked {
  segments: Segment[];
  counts: Counts;
  pages: Both;
}

/** A sentence, or what lies between two. `right` are the right numbers, `notes` the reasons, (中文, English). */
export interface Segment {
  text: string;
  status: "right" | "wrong" | "unverified" | "plain";
  notes: [string, string][];
  right: [string, string][];
  formulas: string[];
}

export type Num = number | null;
export type Lang = keyof Both;
export type Level = "child" | "engineer" | "proof";
export type Status = RunSummary["status"];
export type Rollout = OpenRollout;
export type Columns = OpenRollout["columns"];
export type Settings = AccountSettings;
export type Section = SectionText;
