/** The turns of a conversation, out of the columns: what each was worth before it began, earned, and was credited. */
import type { Columns, Num } from "./types";

export interface Turn {
  turn: number;
  /** Its first chosen token, and how many there are. */
  first: number;
  tokens: number;
  reward: number | null;
  /** V and R of the state in which it begins. */
  value: Num;
  returns: Num;
  /** The mean of its tokens' advantages. */
  advantage: number | null;
}

/** The policy's turns in order; none for a response without the column `turn`. */
export function turnsOf(columns: Columns): Turn[] {
  const places = new Map<number, number[]>();
  (columns.turn ?? []).forEach((turn, t) => {
    if (turn === null || (columns.response_mask && !columns.response_mask[t])) return;
    const known = places.get(turn);
    if (known) known.push(t);
    else places.set(turn, [t]);
  });
  return [...places].map(([turn, slots]) => ({
    turn,
    first: slots[0],
    tokens: slots.length,
    reward: total(columns.rewards, slots),
    value: columns.values?.[slots[0]] ?? null,
    returns: columns.returns?.[slots[0]] ?? null,
    advantage: mean(columns.advantages, slots),
  }));
}

function total(values: readonly Num[] | undefined, slots: readonly number[]): number | null {
  return values ? slots.reduce((sum, t) => sum + (values[t] ?? 0), 0) : null;
}

function mean(values: readonly Num[] | undefined, slots: readonly number[]): number | null {
  const sum = total(values, slots);
  return sum === null ? null : sum / slots.length;
}
