/** The numbers of one token's account, by the names that the texts use. */
import { chosen, groupTotals, valueTerm } from "./credit";
import { number, plain } from "./numbers";
import { GAE } from "./specs.generated";
import type { Columns, Num, Rollout, Section, Settings, Token, Whitening } from "./types";

/** What an account is about: a rollout's columns, as recorded or as recomputed by the sliders. */
export interface Book {
  rollout: Rollout;
  columns: Columns;
  settings: Settings;
  whitening: Whitening | null;
}

export type Facts = Record<string, Num | string>;

const STATE_CHARACTERS = 12;

export function facts(book: Book, t: number): Facts {
  const { rollout, columns, settings, whitening } = book;
  const at = (name: string): Num => columns[name]?.[t] ?? null;
  const mask = plain(columns.response_mask ?? rollout.tokens.map(() => 1));
  const slots = chosen(mask);
  const place = slots.indexOf(t);
  const next = place >= 0 && place + 1 < slots.length ? slots[place + 1] : null;
  const bootstrap = rollout.bootstrap ?? 0;
  const product = (a: Num, b: Num): Num => (a === null || b === null ? null : a * b);

  const found: Facts = {
    t,
    T: rollout.tokens.length,
    token: shown(rollout.tokens[t]),
    next_token: next === null ? "∎" : shown(rollout.tokens[next]),
    state_end: [...(rollout.prompt + rollout.tokens.slice(0, t).map(shown).join(""))].slice(-STATE_CHARACTERS).join(""),
    chosen_left: place < 0 ? 0 : slots.length - place - 1,
    uid: rollout.uid,
    score: at("scores"),
    kl: at("kl"),
    kl_estimator: settings.kl_estimator,
    beta: settings.beta,
    reward: at("rewards"),
    gamma: settings.gamma,
    lam: settings.lam,
    gamma_lam: product(settings.gamma, settings.lam),
    value: at("values"),
    next_value: next === null ? bootstrap : (columns.values?.[next] ?? null),
    bootstrap,
    delta: at("deltas"),
    advantage: at("advantages"),
    next_advantage: next === null ? 0 : (columns.advantages?.[next] ?? null),
    return: at("returns"),
    mean: whitening?.mean ?? null,
    std: whitening && Math.sqrt((whitening.variance ?? whitening.std ** 2) + 1e-8),
    count: whitening?.count ?? null,
    whitened: at("whitened_advantages"),
    rollout_log_prob: at("rollout_log_probs"),
    old_log_prob: at("old_log_probs"),
    ref_log_prob: at("ref_log_probs"),
    new_log_prob: at("new_log_probs"),
    entropy: at("entropy"),
    clip_low: settings.clip_low,
    clip_high: settings.clip_high,
    dual_clip: settings.dual_clip ?? null,
    low_bound: settings.clip_low === null ? null : 1 - settings.clip_low,
    high_bound: settings.clip_high === null ? null : 1 + settings.clip_high,
    n: settings.n ?? null,
    k: settings.k ?? null,
    value_clip: settings.value_clip,
    new_value: at("new_values"),
    value_loss: at("value_loss"),
  };
  return { ...found, ...update(found, at), ...group(book, slots, t), sequence_ratio: sequenceRatio(columns, slots) };
}

/** The update's terms, from the numbers that the loss used. */
function update(found: Facts, at: (name: string) => Num): Facts {
  const [old, fresh] = [at("old_log_probs"), at("new_log_probs")];
  const advantage = at("whitened_advantages") ?? at("advantages");
  const facts: Facts = { ratio: at("ratio"), policy_loss: at("policy_loss"), used: advantage };
  if (old !== null && fresh !== null && advantage !== null) {
    const [low, high] = [Number(found.clip_low ?? 0.2), Number(found.clip_high ?? 0.2)];
    const ratio = Math.exp(Math.min(20, Math.max(-20, fresh - old)));
    const clipped = Math.min(1 + high, Math.max(1 - low, ratio));
    Object.assign(facts, { plain_term: ratio * advantage, clipped_term: clipped * advantage, clipped_ratio: clipped });
    facts.log_ratio = fresh - old;
    facts.ratio ??= ratio;
  }
  const [value, newValue, target] = [at("values"), at("new_values"), at("returns")];
  if (value !== null && newValue !== null && target !== null) {
    const { near } = valueTerm(newValue, target, value, found.value_clip as Num);
    facts.near_value = near;
    facts.plain_square = (newValue - target) ** 2;
    facts.clipped_square = (near - target) ** 2;
  }
  return facts;
}

/** The response's total reward beside those of its group. */
function group(book: Book, slots: number[], t: number): Facts {
  const { rollout, columns, settings } = book;
  const total = slots.reduce((sum, s) => sum + (columns.rewards?.[s] ?? 0), 0);
  const advantage = columns.advantages?.[t] ?? null;
  const others = rollout.siblings.filter((one) => one.row !== rollout.row);
  const rewards = [plain(columns.rewards ?? []), ...others.map((one) => siblingRewards(one, settings.beta))];
  const mask = [plain(columns.response_mask ?? []), ...others.map((one) => plain(one.response_mask))];
  const { mean, std, size } = groupTotals(rewards, mask, mask.map(() => 0))[0];
  return {
    total,
    own: total,
    share: slots.length ? (total && advantage !== null ? advantage / total : 1 / slots.length) : null,
    baseline: advantage === null ? null : total - advantage,
    chosen: slots.length,
    group_mean: mean,
    group_std: std,
    group_size: size,
    others_mean: size > 1 ? (mean * size - total) / (size - 1) : null,
  };
}

/** exp of the mean log-ratio over the whole response. */
function sequenceRatio({ old_log_probs: old, new_log_probs: fresh }: Columns, slots: number[]): Num {
  if (!old || !fresh || slots.length === 0) return null;
  return Math.exp(slots.reduce((sum, t) => sum + (fresh[t] ?? 0) - (old[t] ?? 0), 0) / slots.length);
}

/** A sibling's rewards at this price of the KL; as they were recorded when its parts are not there. */
export function siblingRewards(one: Rollout["siblings"][number], beta: Num): number[] {
  if (!one.scores || !one.kl || beta === null) return plain(one.rewards);
  return one.scores.map((score, t) => (score ?? 0) - beta * (one.kl![t] ?? 0));
}

const shown = (token: Token | undefined): string => token?.text ?? "";

/** The sections that are about this token, under these settings, with these columns. */
export function sectionsFor(sections: readonly Section[], book: Book, found: Facts, t: number): Section[] {
  const mask = book.columns.response_mask;
  if (mask && !mask[t]) return sections.filter((section) => section.id === "not_chosen");
  const has = (name: string): boolean => {
    const value = found[name] ?? book.columns[name]?.[t] ?? (book.settings as unknown as Facts)[name];
    return value !== null && value !== undefined;
  };
  return sections.filter(
    ({ id, estimators, losses, needs, lacks }) =>
      id !== "not_chosen" &&
      (estimators === null || estimators.includes(book.settings.estimator ?? GAE)) &&
      (!losses || losses.includes(book.settings.policy_loss ?? "ppo")) &&
      needs.every(has) &&
      !lacks?.some(has),
  );
}

export function asText(value: Num | string | undefined): string | null {
  if (value === undefined) return null;
  return typeof value === "string" ? value : number(value);
}

/** Which of a section's cases is this token's, by the numbers as they are shown. */
export function caseOf(section: Section, found: Facts, columns: Columns, t: number): string | null {
  const shown = (name: string): number => Number(number(found[name] as Num, 4).replace("−", "-").replace(/×10.*/, ""));
  const on = (name: string): boolean => !!columns[name]?.[t];
  switch (section.case_of) {
    case "delta":
    case "advantage":
    case "whitened":
    case "reward":
    case "kl": {
      const x = shown(section.case_of);
      return x > 0 ? "positive" : x < 0 ? "negative" : "zero";
    }
    case "ratio": {
      const x = shown("ratio");
      return x > 1 ? "up" : x < 1 ? "down" : "same";
    }
    case "policy":
      return on("dual_clipped") ? "dual" : on("clipped") ? "clipped" : "free";
    case "value":
      return on("value_clipped") ? "clipped" : "free";
    case "end":
      return found.chosen_left !== 0 ? "inside" : found.bootstrap === 0 ? "ended" : "bootstrapped";
    default:
      return null;
  }
}
