/** The seeds' worked examples as rows to put into the playground. */
import { klPenalty } from "./credit";
import type { SeedExample } from "./types";

export interface Line {
  token: string;
  chosen: boolean;
  score: number;
  kl: number;
  value: number;
}

export interface Sheet {
  lines: Line[];
  gamma: number;
  lam: number;
  beta: number;
}

const list = (given: SeedExample["given"], name: string): number[] | null => {
  const found = given?.[name];
  return Array.isArray(found) ? found : null;
};
const one = (given: SeedExample["given"], name: string, otherwise: number): number => {
  const found = given?.[name];
  return typeof found === "number" ? found : otherwise;
};

/** What an example gives, or null when it holds nothing to compute with. Rewards without parts stand as scores. */
export function sheetOf(example: SeedExample): Sheet | null {
  const { given } = example;
  const scores = list(given, "scores") ?? list(given, "rewards") ?? list(given, "raw_advantages") ?? list(given, "advantages");
  if (!scores) return null;
  const [old, ref] = [list(given, "old_log_probs"), list(given, "ref_log_prob")];
  const kl = list(given, "kl") ?? (old && ref ? old.map((x, t) => klPenalty(x, ref[t])) : null);
  const values = list(given, "values");
  const names = example.tokens ?? (scores.length === 6 ? [..."是的，", "等于", "2", "！"] : scores.map((_, t) => `y${t}`));
  return {
    lines: scores.map((score, t) => ({ token: names[t], chosen: true, score, kl: kl?.[t] ?? 0, value: values?.[t] ?? 0 })),
    gamma: one(given, "gamma", 1),
    lam: values ? one(given, "lam", 0.95) : 1,
    beta: one(given, "beta", 0),
  };
}

export const title = (example: SeedExample): string => example.id ?? example.seed.replace(/_[0-9a-f]+\.txt/, "");
