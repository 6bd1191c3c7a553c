/** Columns that no ledger stores: differences of two that it has, and the TD errors where a trainer did not keep them. */
import { largest } from "./numbers";
import type { Columns, Num, Rollout } from "./types";

export const GAP = "log_prob_gap";
/** What a derived column is made of. */
export const MADE_OF: Record<string, readonly [string, string]> = { [GAP]: ["rollout_log_probs", "old_log_probs"] };

/** How far the colours of a column reach at least: rounding between two engines is not to look like a difference. */
const LEAST: Record<string, number> = { [GAP]: 0.02 };

/** Columns whose numbers all lie on one side of 0: half of the scale is theirs. */
const SIDES: Record<string, 1 | -1> = { entropy: 1, old_log_probs: -1, new_log_probs: -1, ref_log_probs: -1, rollout_log_probs: -1 };

export const sideOf = (name: string): 1 | 0 | -1 => SIDES[name] ?? 0;

/** Where the colours of a column end, over one answer or several. Where each answer has one number throughout, as in
 * group comparisons, that is no extreme: its colour leaves the text readable. */
export function scaleOf(name: string, ...answers: (readonly Num[])[]): number {
  const most = answers.reduce((found, values) => Math.max(found, largest(values)), LEAST[name] ?? 0);
  return answers.length && answers.every(oneNumber) ? 2 * most : most;
}

const SEVERAL = 8; // tokens

function oneNumber(values: readonly Num[]): boolean {
  const there = values.filter((x): x is number => x !== null && x !== 0);
  return there.length >= SEVERAL && there.length > values.length / 2 && there.every((x) => x === there[0]);
}

/** The rollout with its derived columns. */
export function withDerived(rollout: Rollout): Rollout {
  const columns: Columns = { ...rollout.columns };
  for (const [name, [a, b]] of Object.entries(MADE_OF)) {
    if (columns[a] && columns[b]) columns[name] = columns[a].map((x, t) => difference(x, columns[b][t]));
  }
  const deltas = rollout.account?.lists.delta;
  if (!columns.deltas && columns.values && deltas?.some((x) => x !== null)) columns.deltas = deltas;
  return { ...rollout, columns };
}

const difference = (x: Num, y: Num): Num => (x === null || y === null ? null : x - y);

/** The columns that `name` waits for; none where it is there. */
export function lacking(rollout: Rollout, name: string): string[] {
  if (rollout.columns[name]) return [];
  return (MADE_OF[name] ?? [name]).filter((one) => !rollout.columns[one]);
}
