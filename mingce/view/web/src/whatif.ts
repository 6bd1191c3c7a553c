/** The rollout under other settings: the columns recomputed in the page. */
import { chosen, ESTIMATORS, estimate, klRewards, moments, policyTerms, specOf, valueTerm, whiten } from "./credit";
import type { Credit, Estimator, Moments } from "./credit";
import type { Book } from "./facts";
import { plain } from "./numbers";
import { EPSILON, GAE } from "./specs.generated";
import type { Columns, Num, Rollout, Sibling, Whitening } from "./types";

export type Whiten = "none" | "step" | "group";

export interface WhatIf {
  gamma: number;
  lam: number;
  beta: number;
  estimator: Estimator;
  n: number;
  k: number;
  whiten: Whiten;
}

/** The estimator of the person's own that made the advantages, which the page cannot recompute; else null. */
export function ownCode({ settings }: Rollout): string | null {
  return settings.estimator !== null && specOf(settings.estimator) === null ? settings.estimator : null;
}

export function recorded(rollout: Rollout): WhatIf {
  const { gamma, lam, beta, estimator, n, k, whiten } = rollout.settings;
  return {
    gamma: gamma ?? 1,
    lam: lam ?? 0.95,
    beta: beta ?? 0,
    estimator: ownCode(rollout) ? (ESTIMATORS.find((name) => possible(rollout, name)) ?? GAE) : ((estimator ?? GAE) as Estimator),
    n: n ?? 5,
    k: k ?? 3,
    whiten: whiten ? "step" : "none",
  };
}

const WHITENINGS: readonly Whiten[] = ["none", "step", "group"];
const LIMITS = { gamma: 1, lam: 1, beta: 10, n: 1000, k: 1000 } as const;

/** The settings that an address asks for; what it does not say, or cannot be had, is as recorded. */
export function askedFor(rollout: Rollout, query: URLSearchParams): WhatIf {
  const what = recorded(rollout);
  for (const name of Object.keys(LIMITS) as (keyof typeof LIMITS)[]) {
    const given = query.get(name);
    const whole = name === "n" || name === "k";
    const value = given === null || given === "" ? NaN : Number(given);
    if (value >= (whole ? 1 : 0) && value <= LIMITS[name] && (!whole || Number.isInteger(value))) what[name] = value;
  }
  const estimator = ESTIMATORS.find((name) => name === query.get("estimator"));
  if (estimator && possible(rollout, estimator)) what.estimator = estimator;
  what.whiten = WHITENINGS.find((name) => name === query.get("whiten")) ?? what.whiten;
  return what;
}

/** For an address: only what differs from what was recorded. */
export function written(rollout: Rollout, what: WhatIf): Record<string, string | number | null> {
  const before = recorded(rollout);
  const names = Object.keys(before) as (keyof WhatIf)[];
  return Object.fromEntries(names.map((name) => [name, what[name] === before[name] ? null : what[name]]));
}

/** The rollout first, then the other samples of its prompt. */
export interface Group {
  rewards: number[][];
  values: number[][];
  mask: number[][];
  after: number[];
  rowInputs: Rollout["row_inputs"];
}

export function groupOf(rollout: Rollout, beta: number): Group {
  const { columns } = rollout;
  const others = rollout.siblings.filter((one) => one.row !== rollout.row);
  const mask = [plain(columns.response_mask), ...others.map((one) => plain(one.columns.response_mask))];
  const priced = columns.scores && columns.kl && rollout.settings.beta !== null;
  const own = priced
    ? klRewards([plain(columns.scores)], [plain(columns.kl)], [mask[0]], beta)[0]
    : plain(columns.rewards ?? columns.scores ?? mask[0]);
  return {
    rewards: [own, ...others.map((one, b) => siblingRewards(one, mask[b + 1], priced ? beta : null))],
    values: [
      columns.values ? plain(columns.values) : mask[0].map(() => 0),
      ...others.map(({ columns: theirs }) => (theirs.values ? plain(theirs.values) : theirs.response_mask.map(() => 0))),
    ],
    mask,
    after: [rollout.bootstrap, ...others.map((one) => one.bootstrap)],
    rowInputs: rollout.row_inputs,
  };
}

/** A sibling's rewards at this price of the KL; as they were recorded when its parts are not there. */
function siblingRewards({ columns }: Sibling, mask: number[], beta: Num): number[] {
  if (!columns.scores || !columns.kl || beta === null) return plain(columns.rewards ?? columns.scores ?? mask);
  return klRewards([plain(columns.scores)], [plain(columns.kl)], [mask], beta)[0];
}

export function creditOf(group: Group, what: WhatIf, own: Columns = {}): Credit {
  const width = Math.max(...group.mask.map((row) => row.length));
  const [attention, turn] = [own.attention_weights, own.turn].map(
    (column) => column && group.mask.map((row, b) => (b ? row : plain(column))),
  );
  return estimate(what.estimator, { ...group, attention, turn }, { ...what, n: Math.min(what.n, width) });
}

/** The same book with the credit columns, and the losses that hang on them, as these settings would have made them. */
export function rewrite(rollout: Rollout, what: WhatIf): Book {
  const group = groupOf(rollout, what.beta);
  const credit = creditOf(group, what, rollout.columns);
  const stats = statistics(rollout, what, credit, group);
  const white = what.whiten === "none" ? null : whiten(credit.advantages, group.mask, stats ?? undefined)[0];
  const mask = group.mask[0];
  const kept = (row: readonly number[]): Num[] => row.map((x, t) => (mask[t] && Number.isFinite(x) ? x : null));

  const columns: Columns = { ...rollout.columns, rewards: kept(group.rewards[0]), advantages: kept(credit.advantages[0]) };
  for (const name of ["deltas", "returns", "whitened_advantages", "policy_loss", "clipped", "dual_clipped", "value_loss", "value_clipped"]) {
    delete columns[name];
  }
  const deltas = credit.deltas ?? (rollout.columns.values ? estimate(GAE, group, what).deltas : null);
  if (deltas) columns.deltas = kept(deltas[0]);
  if (credit.returns) columns.returns = kept(credit.returns[0]);
  if (white) columns.whitened_advantages = kept(white);
  const settings = { ...rollout.settings, ...what, whiten: what.whiten !== "none" };
  const book: Book = { rollout, columns, settings, whitening: stats, account: null };
  losses(book, white ?? credit.advantages[0], credit.returns?.[0] ?? null);
  return book;
}

function statistics(rollout: Rollout, what: WhatIf, credit: Credit, group: Group): Whitening | null {
  if (what.whiten === "none") return null;
  if (what.whiten === "step" && rollout.whitening) return rollout.whitening;
  const own: Moments = moments(credit.advantages, group.mask);
  return { ...own, std: Math.sqrt(own.variance), epsilon: EPSILON };
}

function losses({ rollout, columns, settings }: Book, advantages: number[], targets: number[] | null): void {
  const { old_log_probs: old, new_log_probs: fresh, values, new_values } = rollout.columns;
  const slots = chosen(plain(columns.response_mask));
  const empty = (): Num[] => rollout.tokens.map(() => null);
  const mask = plain(columns.response_mask);
  const terms =
    old && fresh && policyTerms(settings.policy_loss ?? "ppo", plain(old), plain(fresh), advantages, mask, { ...settings });
  if (terms) {
    for (const name of ["ratio", "policy_loss", "clipped", "dual_clipped"]) columns[name] = empty();
    for (const t of slots) {
      if (old[t] === null || fresh[t] === null) continue;
      columns.ratio[t] = terms[t].ratio;
      columns.policy_loss[t] = terms[t].loss;
      columns.clipped[t] = Number(terms[t].clipped ?? false);
      columns.dual_clipped[t] = Number(terms[t].dual_clipped ?? false);
    }
  }
  if (targets && values && new_values) {
    for (const name of ["value_loss", "value_clipped"]) columns[name] = empty();
    for (const t of slots) {
      if (values[t] === null || new_values[t] === null) continue;
      const term = valueTerm(new_values[t], targets[t], values[t], settings.value_clip);
      columns.value_loss[t] = term.loss;
      columns.value_clipped[t] = Number(term.clipped);
    }
  }
}

/** Estimators that this rollout has the columns for. */
export function possible(rollout: Rollout, name: Estimator): boolean {
  const there = (input: string): boolean => input === "rewards" || input === "group" || !!rollout.columns[input] || (rollout.row_inputs[input] ?? null) !== null;
  return specOf(name)!.inputs.every(there);
}
