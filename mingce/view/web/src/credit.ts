/** The arithmetic of credit in float64, the same as `mingce/algorithms/reference.py`.
 *
 * A column is a list of rows, a row a list of numbers; a mask holds 1 where the policy chose the token. Slots behind the
 * mask are stepped over and come out as 0, so nothing behind it can change a number in front of it.
 */

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

const FLOAT32_EPS = 2 ** -23;
const EPSILON = 1e-8;

const zeros = (mask: Column): Matrix => mask.map((row) => row.map(() => 0));

/** The slots of a row that the policy chose. */
export const chosen = (mask: Row): number[] => mask.flatMap((m, t) => (m ? [t] : []));

const sum = (numbers: Row): number => numbers.reduce((total, x) => total + x, 0);

// ── KL and rewards ────────────────────────────────────────────────────────────────────────────────────────────────

/** The named estimate for one token, x = log π − log π_ref. */
export function klPenalty(logProb: number, refLogProb: number, name = "k1", clamp: number | null = null): number {
  const x = logProb - refLogProb;
  const base = name.replace(/\+$/, "");
  const value =
    base === "abs"
      ? Math.abs(x)
      : base === "k2" || base === "mse"
        ? (x * x) / 2
        : base === "k3" || base === "low_var_kl"
          ? Math.expm1(-x) + x
          : x;
  return clamp === null ? value : Math.min(Math.max(value, -clamp), clamp);
}

/** r_t = score_t − β·k_t. */
export function klRewards(scores: Column, kl: Column, mask: Column, beta: number): Matrix {
  return mask.map((row, b) => row.map((m, t) => (m ? scores[b][t] - beta * kl[b][t] : 0)));
}

// ── with a critic ─────────────────────────────────────────────────────────────────────────────────────────────────

/** δ_t = r_t + γV(s_{t+1}) − V(s_t); A_t = δ_t + γλA_{t+1}; R_t = A_t + V(s_t). `after` is V after the last token. */
export function gae(rewards: Column, values: Column, mask: Column, gamma: number, lam: number, after?: Row): Credit {
  const advantages = zeros(mask);
  const deltas = zeros(mask);
  const returns = zeros(mask);
  mask.forEach((row, b) => {
    let valueAfter = after ? after[b] : 0;
    let advantageAfter = 0;
    for (const t of chosen(row).reverse()) {
      deltas[b][t] = rewards[b][t] + gamma * valueAfter - values[b][t];
      advantages[b][t] = deltas[b][t] + gamma * lam * advantageAfter;
      returns[b][t] = advantages[b][t] + values[b][t];
      valueAfter = values[b][t];
      advantageAfter = advantages[b][t];
    }
  });
  return { advantages, deltas, returns };
}

/** A_t = Σ_{k<n} γ^k δ_{t+k}: n rewards, then the critic. */
export function nStep(rewards: Column, values: Column, mask: Column, gamma: number, n: number, after?: Row): Credit {
  const deltas = gae(rewards, values, mask, gamma, 0, after).deltas!;
  const advantages = zeros(mask);
  const returns = zeros(mask);
  mask.forEach((row, b) => {
    const slots = chosen(row);
    slots.forEach((t, i) => {
      let weight = 1;
      for (const later of slots.slice(i, i + n)) {
        advantages[b][t] += weight * deltas[b][later];
        weight *= gamma;
      }
      returns[b][t] = advantages[b][t] + values[b][t];
    });
  });
  return { advantages, deltas, returns };
}

// ── sharing out the response's reward ─────────────────────────────────────────────────────────────────────────────

function share(rewards: Column, mask: Column, weight: (b: number, t: number, k: number, n: number) => number): Matrix {
  const advantages = zeros(mask);
  mask.forEach((row, b) => {
    const slots = chosen(row);
    const total = sum(slots.map((t) => rewards[b][t]));
    let weights = slots.map((t, k) => weight(b, t, k, slots.length));
    if (sum(weights) <= 0) weights = slots.map(() => 1);
    const whole = sum(weights);
    slots.forEach((t, k) => (advantages[b][t] = (total * weights[k]) / whole));
  });
  return advantages;
}

// ── against the other samples of the same prompt ──────────────────────────────────────────────────────────────────

/** Each row's total reward and what its group's totals look like; rows without a chosen token are in no group. */
export function groupTotals(rewards: Column, mask: Column, group: readonly unknown[]) {
  const totals = mask.map((row, b) => sum(chosen(row).map((t) => rewards[b][t])));
  return mask.map((_, b) => {
    const members = totals.filter((_, i) => group[i] === group[b] && mask[i].some(Boolean));
    const mean = members.length ? sum(members) / members.length : 0;
    const variance = members.length < 2 ? 0 : sum(members.map((x) => (x - mean) ** 2)) / (members.length - 1);
    const noise = members.length ? (FLOAT32_EPS * sum(members.map(Math.abs))) / members.length : 0;
    return { total: totals[b], mean, std: variance > noise ** 2 ? Math.sqrt(variance) : 0, size: members.length };
  });
}

function againstGroup(
  rewards: Column,
  mask: Column,
  group: readonly unknown[],
  advantage: (own: number, mean: number, std: number, size: number) => number,
): Matrix {
  const groups = groupTotals(rewards, mask, group);
  return mask.map((row, b) => {
    const { total, mean, std, size } = groups[b];
    const one = std > 0 ? advantage(total, mean, std, size) : 0;
    return row.map((m) => (m ? one : 0));
  });
}

// ── by name ───────────────────────────────────────────────────────────────────────────────────────────────────────

export const WITH_CRITIC = ["gae", "monte_carlo", "td0", "n_step"] as const;
export const ESTIMATORS = [
  ...WITH_CRITIC,
  "uniform",
  "last_k",
  "attention",
  "grpo",
  "dr_grpo",
  "rloo",
  "reinforce_plus_plus",
] as const;
export type Estimator = (typeof ESTIMATORS)[number];

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

export const needsCritic = (name: string): boolean => (WITH_CRITIC as readonly string[]).includes(name);

/** The λ that the estimator amounts to, or null when it is not a sum of TD errors. */
export function effectiveLambda(name: string, lam: number): number | null {
  const known: Record<string, number> = { gae: lam, monte_carlo: 1, n_step: 1, td0: 0 };
  return known[name] ?? null;
}

export function estimate(name: Estimator, batch: Batch, settings: CreditSettings): Credit {
  const { rewards, mask } = batch;
  const group = batch.group ?? mask.map(() => 0);
  const only = (advantages: Matrix): Credit => ({ advantages, deltas: null, returns: null });
  if (needsCritic(name)) {
    const values = batch.values ?? zeros(mask);
    if (name === "n_step") return nStep(rewards, values, mask, settings.gamma, settings.n ?? 5, batch.after);
    return gae(rewards, values, mask, settings.gamma, effectiveLambda(name, settings.lam)!, batch.after);
  }
  switch (name) {
    case "uniform":
      return only(share(rewards, mask, () => 1));
    case "last_k":
      return only(share(rewards, mask, (_b, _t, i, n) => (i >= n - (settings.k ?? 3) ? 1 : 0)));
    case "attention":
      return only(share(rewards, mask, (b, t) => batch.attention?.[b][t] ?? 0));
    case "grpo":
      return only(againstGroup(rewards, mask, group, (own, mean, std) => (own - mean) / (std + 1e-6)));
    case "dr_grpo":
      return only(againstGroup(rewards, mask, group, (own, mean) => own - mean));
    case "rloo":
      return only(againstGroup(rewards, mask, group, (own, mean, _s, n) => ((own - mean) * n) / (n - 1)));
    default:
      return only(gae(rewards, zeros(mask), mask, settings.gamma, 1).advantages);
  }
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
  plain: number;
  limited: number;
  loss: number;
  clipped: boolean;
}

/** −min(ρÂ, clip(ρ)Â), at most −cÂ for a bad token. */
export function policyTerm(
  oldLogProb: number,
  logProb: number,
  advantage: number,
  low = 0.2,
  high = 0.2,
  dualClip: number | null = 3,
): PolicyTerm {
  const ratio = Math.exp(Math.min(20, Math.max(-20, logProb - oldLogProb)));
  const plain = ratio * advantage;
  const limited = Math.min(1 + high, Math.max(1 - low, ratio)) * advantage;
  let objective = Math.min(plain, limited);
  let clipped = limited < plain;
  if (dualClip !== null && advantage < 0 && objective < dualClip * advantage) {
    objective = dualClip * advantage;
    clipped = true;
  }
  return { ratio, plain, limited, loss: -objective, clipped };
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
