// Written by scripts/make_page_specs.py from mingce/specs; change those and run `make web`.
// @ts-nocheck
import { any, concat, enumerate, fsum, list, range, repeat, reversed, slice, sum, zip } from "./python";

const FLOAT32_EPS = 1.1920928955078125e-07;
const MAX_LOG_RATIO = 20.0;
const MAX_SEQUENCE_LOG_RATIO = 10.0;
const SMALL = 0.0005;
const SAME = 1e-06;
const STATE_END = 12;

export function zeros(mask) {
  return list(mask).map((row) => repeat([0.0], row.length));
}

export function chosen(row) {
  return list(enumerate(row)).filter(([t, m]) => m).map(([t, m]) => t);
}

export function limited(value, clamp) {
  return ((clamp == null) ? value : Math.min(Math.max(value, (-clamp)), clamp));
}

export function effective_lambda(self, lam) {
  return ((self.settings.includes("lam") && (self.kind === "recursion")) ? lam : self.fixed_lambda);
}

export function _with_critic(rewards, values, mask, gamma, bootstrap, advantage) {
  let advantages, after, deltas, errors, following, returns, slots;
  [advantages, deltas, returns] = [zeros(mask), zeros(mask), zeros(mask)];
  for (const [b, row] of enumerate(mask)) {
    slots = chosen(row);
    after = ((bootstrap == null) ? 0.0 : bootstrap[b]);
    following = concat(list(slice(slots, 1, undefined)).map((t) => values[b][t]), [after]);
    errors = list(zip(slots, following)).map(([t, v]) => ((rewards[b][t] + (gamma * v)) - values[b][t]));
    for (const [k, t] of enumerate(slots)) {
      deltas[b][t] = errors[k];
      advantages[b][t] = advantage(errors, k);
      returns[b][t] = (advantages[b][t] + values[b][t]);
    }
  }
  return { advantages: advantages, deltas: deltas, returns: returns };
}

export function gae(rewards, values, response_mask, gamma = 1.0, lam = 0.95, bootstrap = null) {
  let advantage_after, advantages, deltas, returns, value_after;
  [advantages, deltas, returns] = [zeros(response_mask), zeros(response_mask), zeros(response_mask)];
  for (const [b, row] of enumerate(response_mask)) {
    value_after = ((bootstrap == null) ? 0.0 : bootstrap[b]);
    advantage_after = 0.0;
    for (const t of reversed(chosen(row))) {
      deltas[b][t] = ((rewards[b][t] + (gamma * value_after)) - values[b][t]);
      advantages[b][t] = (deltas[b][t] + ((gamma * lam) * advantage_after));
      returns[b][t] = (advantages[b][t] + values[b][t]);
      [value_after, advantage_after] = [values[b][t], advantages[b][t]];
    }
  }
  return { advantages: advantages, deltas: deltas, returns: returns };
}

export function monte_carlo(rewards, values, response_mask, gamma = 1.0, bootstrap = null) {
  let advantages, deltas, returns, total;
  deltas = gae(rewards, values, response_mask, gamma, 0.0, bootstrap).deltas;
  [advantages, returns] = [zeros(response_mask), zeros(response_mask)];
  for (const [b, row] of enumerate(response_mask)) {
    total = ((bootstrap == null) ? 0.0 : bootstrap[b]);
    for (const t of reversed(chosen(row))) {
      total = (rewards[b][t] + (gamma * total));
      returns[b][t] = total;
      advantages[b][t] = (total - values[b][t]);
    }
  }
  return { advantages: advantages, deltas: deltas, returns: returns };
}

export function td0(rewards, values, response_mask, gamma = 1.0, bootstrap = null) {
  return _with_critic(rewards, values, response_mask, gamma, bootstrap, ((errors, k) => errors[k]));
}

export function n_step(rewards, values, response_mask, gamma = 1.0, n = 5, bootstrap = null) {
  function advantage(errors, k) {
    return fsum(list(enumerate(slice(errors, k, (k + n)))).map(([j, error]) => ((gamma ** j) * error)));
  }
  return _with_critic(rewards, values, response_mask, gamma, bootstrap, advantage);
}

export function turns_of(mask, turn) {
  let ends, slots, starts;
  slots = chosen(mask);
  starts = list(range(slots.length)).filter((k) => ((k === 0) || (turn[slots[k]] !== turn[slots[(k - 1)]]))).map((k) => k);
  ends = list(range(starts.length)).map((i) => (((i + 1) < starts.length) ? starts[(i + 1)] : slots.length));
  return list(zip(starts, ends)).map(([start, end]) => slice(slots, start, end));
}

export function turn_gae(rewards, values, response_mask, turn, gamma = 1.0, lam = 0.95, bootstrap = null) {
  let advantage_after, advantages, delta, returns, value, value_after;
  [advantages, returns] = [zeros(response_mask), zeros(response_mask)];
  for (const [b, row] of enumerate(response_mask)) {
    value_after = ((bootstrap == null) ? 0.0 : bootstrap[b]);
    advantage_after = 0.0;
    for (const slots of reversed(turns_of(row, turn[b]))) {
      value = values[b][slots[0]];
      delta = ((fsum(list(slots).map((t) => rewards[b][t])) + (gamma * value_after)) - value);
      advantage_after = (delta + ((gamma * lam) * advantage_after));
      value_after = value;
      for (const t of slots) {
        advantages[b][t] = advantage_after;
        returns[b][t] = (advantage_after + value);
      }
    }
  }
  return { advantages: advantages, deltas: gae(rewards, values, response_mask, gamma, 0.0, bootstrap).deltas, returns: returns };
}

export function share(rewards, mask, weight) {
  let advantages, slots, total, weights;
  advantages = zeros(mask);
  for (const [b, row] of enumerate(mask)) {
    slots = chosen(row);
    total = fsum(list(slots).map((t) => rewards[b][t]));
    weights = list(enumerate(slots)).map(([k, t]) => weight(b, t, k, slots.length));
    if ((fsum(weights) <= 0)) {
      weights = repeat([1.0], slots.length);
    }
    for (const [t, w] of zip(slots, weights)) {
      advantages[b][t] = ((total * w) / fsum(weights));
    }
  }
  return advantages;
}

export function uniform(rewards, response_mask) {
  return share(rewards, response_mask, ((b, t, k, n) => 1.0));
}

export function last_k(rewards, response_mask, k = 3) {
  return share(rewards, response_mask, ((b, t, position, n) => ((position >= (n - k)) ? 1.0 : 0.0)));
}

export function attention(rewards, response_mask, attention_weights) {
  return share(rewards, response_mask, ((b, t, k, n) => attention_weights[b][t]));
}

export function members_of(rewards, mask, rows) {
  let lengths, mean, noise, slots, totals, variance;
  slots = list(rows).filter((b) => any(mask[b])).map((b) => chosen(mask[b]));
  totals = list(rows).filter((b) => any(mask[b])).map((b) => fsum(list(chosen(mask[b])).map((t) => rewards[b][t])));
  lengths = list(slots).map((row) => row.length);
  if ((totals.length < 2)) {
    return { totals: totals, lengths: lengths, mean: fsum(totals), std: 0.0 };
  }
  mean = (fsum(totals) / totals.length);
  variance = (fsum(list(totals).map((x) => ((x - mean) ** 2))) / (totals.length - 1));
  noise = ((FLOAT32_EPS * fsum(list(totals).map((x) => Math.abs(x)))) / totals.length);
  return { totals: totals, lengths: lengths, mean: mean, std: ((variance > (noise ** 2)) ? Math.sqrt(variance) : 0.0) };
}

export function _against_group(rewards, mask, group, advantage) {
  let advantages, members, own;
  advantages = zeros(mask);
  for (const [b, row] of enumerate(mask)) {
    if (((b === 0) || (group[b] !== group[(b - 1)]))) {
      members = members_of(rewards, mask, list(range(mask.length)).filter((i) => (group[i] === group[b])).map((i) => i));
    }
    if ((members.std > 0)) {
      own = fsum(list(chosen(row)).map((t) => rewards[b][t]));
      for (const t of chosen(row)) {
        advantages[b][t] = advantage(own, members);
      }
    }
  }
  return advantages;
}

export function grpo(rewards, response_mask, group, epsilon = 1e-06) {
  return _against_group(rewards, response_mask, group, ((own, all_) => ((own - all_.mean) / (all_.std + epsilon))));
}

export function dr_grpo(rewards, response_mask, group) {
  return _against_group(rewards, response_mask, group, ((own, all_) => (own - all_.mean)));
}

export function rloo(rewards, response_mask, group) {
  function advantage(own, all_) {
    return (own - ((fsum(all_.totals) - own) / (all_.totals.length - 1)));
  }
  return _against_group(rewards, response_mask, group, advantage);
}

export function opo(rewards, response_mask, group) {
  let weighted;
  function advantage(own, all_) {
    let weighted;
    weighted = fsum(list(zip(all_.lengths, all_.totals)).map(([n, total]) => (n * total)));
    return (own - (weighted / sum(all_.lengths)));
  }
  return _against_group(rewards, response_mask, group, advantage);
}

export function discounted_sum(x, decay) {
  let after, sums;
  [sums, after] = [repeat([0.0], x.length), 0.0];
  for (const t of reversed(range(x.length))) {
    sums[t] = after = (x[t] + (decay * after));
  }
  return sums;
}

export function reinforce_plus_plus(rewards, response_mask, gamma = 1.0) {
  let advantages, slots;
  advantages = zeros(response_mask);
  for (const [b, row] of enumerate(response_mask)) {
    slots = chosen(row);
    for (const [t, total] of zip(slots, discounted_sum(list(slots).map((t) => rewards[b][t]), gamma))) {
      advantages[b][t] = total;
    }
  }
  return advantages;
}

export function remax(rewards, response_mask, greedy_score) {
  let advantages;
  advantages = reinforce_plus_plus(rewards, response_mask);
  for (const [b, row] of enumerate(response_mask)) {
    for (const t of chosen(row)) {
      advantages[b][t] = (advantages[b][t] - greedy_score[b]);
    }
  }
  return advantages;
}

export function policy_ratio(old_log_prob, log_prob) {
  return Math.exp(Math.max((-MAX_LOG_RATIO), Math.min(MAX_LOG_RATIO, (log_prob - old_log_prob))));
}

export function sequence_ratio(old, new_, mask) {
  let mean, slots;
  slots = chosen_slots(mask);
  mean = (fsum(list(slots).map((t) => (new_[t] - old[t]))) / Math.max(slots.length, 1));
  return Math.exp(Math.min(mean, MAX_SEQUENCE_LOG_RATIO));
}

export function policy_term(old_log_prob, log_prob, advantage, low = 0.2, high = 0.2, dual_clip = 3.0) {
  let capped, clipped, limited, objective, plain, ratio;
  ratio = policy_ratio(old_log_prob, log_prob);
  plain = (ratio * advantage);
  limited = (Math.max((1 - low), Math.min((1 + high), ratio)) * advantage);
  [objective, clipped, capped] = [Math.min(plain, limited), (limited < plain), false];
  if (((dual_clip != null) && (advantage < 0) && (objective < (dual_clip * advantage)))) {
    [objective, capped] = [(dual_clip * advantage), true];
  }
  return { ratio: ratio, loss: (-objective), clipped: (clipped || capped), dual_clipped: capped };
}

export function cpi_term(old_log_prob, log_prob, advantage) {
  return ((-policy_ratio(old_log_prob, log_prob)) * advantage);
}

export function ppo(old, new_, advantages, mask, clip_low, clip_high, dual_clip) {
  return Object.fromEntries(list(chosen_slots(mask)).map((t) => [t, policy_term(old[t], new_[t], advantages[t], clip_low, clip_high, dual_clip)]));
}

export function cpi(old, new_, advantages, mask) {
  return Object.fromEntries(list(chosen_slots(mask)).map((t) => [t, { ratio: policy_ratio(old[t], new_[t]), loss: cpi_term(old[t], new_[t], advantages[t]) }]));
}

export function gspo(old, new_, advantages, mask, clip_low, clip_high) {
  let limited, plain, s, terms;
  s = sequence_ratio(old, new_, mask);
  terms = ({  });
  for (const t of chosen_slots(mask)) {
    [plain, limited] = [(s * advantages[t]), (Math.max((1 - clip_low), Math.min((1 + clip_high), s)) * advantages[t])];
    terms[t] = { ratio: policy_ratio(old[t], new_[t]), loss: (-Math.min(plain, limited)), clipped: (limited < plain) };
  }
  return terms;
}

export function cispo(old, new_, advantages, mask, clip_low, clip_high) {
  let ratio, terms, weight;
  terms = ({  });
  for (const t of chosen_slots(mask)) {
    ratio = policy_ratio(old[t], new_[t]);
    weight = Math.max((1 - clip_low), Math.min((1 + clip_high), ratio));
    terms[t] = { ratio: ratio, loss: (((-weight) * advantages[t]) * new_[t]), clipped: (weight !== ratio) };
  }
  return terms;
}

export function chosen_slots(mask) {
  return chosen(list(mask).map((m) => !!(m)));
}

export function _chosen_values(values, mask) {
  return list(enumerate(mask)).flatMap(([b, row]) => list(chosen(row)).map((t) => values[b][t]));
}

export function masked_mean(values, mask) {
  let numbers;
  numbers = _chosen_values(values, mask);
  return (numbers ? (fsum(numbers) / numbers.length) : 0.0);
}

export function masked_var(values, mask, unbiased = true) {
  let mean, numbers, variance;
  numbers = _chosen_values(values, mask);
  if ((numbers.length < 2)) {
    return 0.0;
  }
  mean = (fsum(numbers) / numbers.length);
  variance = (fsum(list(numbers).map((x) => ((x - mean) ** 2))) / (unbiased ? (numbers.length - 1) : numbers.length));
  return ((variance > ((FLOAT32_EPS * Math.abs(mean)) ** 2)) ? variance : 0.0);
}

export function standardise(values, mask, mean, variance, shift = 0.0) {
  let standard, whitened;
  whitened = zeros(mask);
  for (const [b, row] of enumerate(mask)) {
    for (const t of chosen(row)) {
      standard = ((variance > 0) ? ((values[b][t] - mean) / Math.sqrt((variance + 1e-08))) : 0.0);
      whitened[b][t] = (standard + shift);
    }
  }
  return whitened;
}

export function kl_rewards(scores, kl, mask, beta) {
  let rewards;
  rewards = zeros(mask);
  for (const [b, row] of enumerate(mask)) {
    for (const t of chosen(row)) {
      rewards[b][t] = (scores[b][t] - (beta * kl[b][t]));
    }
  }
  return rewards;
}

export function value_term(vpred, return_, value, cliprange_value = 0.5) {
  let limited, near, plain;
  plain = ((vpred - return_) ** 2);
  if ((cliprange_value == null)) {
    return { loss: (plain / 2), clipped: false };
  }
  near = Math.max((value - cliprange_value), Math.min((value + cliprange_value), vpred));
  limited = ((near - return_) ** 2);
  return { loss: (Math.max(plain, limited) / 2), clipped: (limited > plain) };
}

export function row_of(columns, settings, bootstrap, whitening, others) {
  let flat, following, high, known, left, low, mask, new_, old, rewards, shared, slots, total;
  mask = columns["response_mask"];
  slots = chosen(list(mask).map((m) => !!(m)));
  following = repeat([null], mask.length);
  left = repeat([null], mask.length);
  for (const [place, t] of enumerate(slots)) {
    following[t] = (((place + 1) < slots.length) ? slots[(place + 1)] : null);
    left[t] = ((slots.length - place) - 1);
  }
  [rewards, low, high] = [(columns["rewards"] ?? null), settings["clip_low"], settings["clip_high"]];
  total = ((rewards == null) ? null : fsum(list(slots).map((t) => or_zero(rewards[t]))));
  [old, new_] = [(columns["old_log_probs"] ?? null), (columns["new_log_probs"] ?? null)];
  known = ((old != null) && (new_ != null) && (slots.length > 0));
  flat = says_one_number((columns["values"] ?? null), slots, bootstrap);
  shared = ({ "T": mask.length, "count_chosen": slots.length, "own": total, "total": total, "bootstrap": bootstrap, "flat": flat, "flat_credit": (flat && reads(settings["estimator"], "values")), "by_turns": (reads(settings["estimator"], "turn") ? true : null), "beta": settings["beta"], "gamma": settings["gamma"], "lam": settings["lam"], "gamma_lam": product(settings["gamma"], settings["lam"]), "n": settings["n"], "k": settings["k"], "kl_estimator": settings["kl_estimator"], "clip_low": low, "clip_high": high, "low_bound": ((low == null) ? null : (1 - low)), "high_bound": ((high == null) ? null : (1 + high)), "dual_clip": settings["dual_clip"], "value_clip": settings["value_clip"], "mean": ((whitening == null) ? null : whitening.mean), "std": ((whitening == null) ? null : Math.sqrt((whitening.variance + whitening.epsilon))), "count": ((whitening == null) ? null : whitening.count), "sequence_ratio": (known ? sequence_ratio(without_gaps(old), without_gaps(new_), mask) : null) });
  return { shared: ({ ...shared, ...others }), following: following, left: left };
}

export function says_one_number(values, slots, bootstrap) {
  let first, others;
  if (((values == null) || (slots.length < 2) || any(list(slots).map((t) => (values[t] == null))))) {
    return false;
  }
  first = or_zero(values[slots[0]]);
  others = concat(list(slots).map((t) => or_zero(values[t])), (bootstrap ? [bootstrap] : []));
  return !(any(list(others).map((x) => (Math.abs((x - first)) > SAME))));
}

export function reads(estimator, column) {
  let spec;
  spec = (ESTIMATORS[(estimator || "")] ?? null);
  return ((spec != null) && spec.inputs.includes(column));
}

export function group_facts(rewards, masks, own) {
  let group, size, total;
  group = members_of(rewards, masks, range(masks.length));
  size = group.totals.length;
  total = fsum(list(chosen(masks[own])).map((t) => rewards[own][t]));
  return ({ "group_size": size, "group_mean": group.mean, "group_std": ((size > 1) ? group.std : null), "others_mean": ((size > 1) ? ((fsum(group.totals) - total) / (size - 1)) : null) });
}

export function no_group() {
  return ({ "group_size": null, "group_mean": null, "group_std": null, "others_mean": null });
}

export function token_facts(t, columns, row) {
  let advantage, after, clipped_ratio, following_value, last, near, new_, new_value, old, ratio, reach, shared, squares, target, used, value;
  [shared, after] = [row.shared, row.following[t]];
  last = (after == null);
  [value, advantage, target] = [at(columns, "values", t), at(columns, "advantages", t), at(columns, "returns", t)];
  [old, new_, ratio] = [at(columns, "old_log_probs", t), at(columns, "new_log_probs", t), at(columns, "ratio", t)];
  [used, new_value, reach] = [at(columns, "used", t), at(columns, "new_values", t), shared["value_clip"]];
  clipped_ratio = clip(ratio, shared["low_bound"], shared["high_bound"]);
  squares = ((value != null) && (new_value != null) && (target != null));
  near = ((!(squares) || (reach == null)) ? new_value : clip(new_value, (value - reach), (value + reach)));
  following_value = at(columns, "values", ((after == null) ? t : after));
  return ({ ...shared, ...({ "t": t, "chosen": (row.left[t] != null), "chosen_left": row.left[t], "score": at(columns, "scores", t), "kl": at(columns, "kl", t), "reward": at(columns, "rewards", t), "value": value, "next_value": ((last && (value != null)) ? shared["bootstrap"] : following_value), "delta": at(columns, "deltas", t), "advantage": advantage, "next_advantage": (last ? 0.0 : at(columns, "advantages", ((after == null) ? t : after))), "return": target, "turn_value": difference(target, advantage), "baseline": difference(shared["total"], advantage), "share": share_of(advantage, shared["total"], shared["count_chosen"]), "whitened": at(columns, "whitened_advantages", t), "used": used, "entropy": at(columns, "entropy", t), "rollout_log_prob": at(columns, "rollout_log_probs", t), "old_log_prob": old, "ref_log_prob": at(columns, "ref_log_probs", t), "new_log_prob": new_, "log_ratio": difference(new_, old), "ratio": ratio, "clipped_ratio": clipped_ratio, "plain_term": product(ratio, used), "clipped_term": product(clipped_ratio, used), "policy_loss": at(columns, "policy_loss", t), "new_value": new_value, "near_value": ((squares && (reach != null)) ? near : null), "plain_square": (squares ? squared(difference(new_value, target)) : null), "clipped_square": ((squares && (reach != null)) ? squared(difference(near, target)) : null), "value_loss": at(columns, "value_loss", t) }) });
}

export function token_texts(t, prompt, texts, glyphs, following) {
  let before;
  before = list((prompt + slice(texts, undefined, t).join("")));
  return ({ "token": glyph_text(texts, glyphs, t), "next_token": ((following == null) ? null : glyph_text(texts, glyphs, following)), "state_end": state_end(before) });
}

export function state_end(before) {
  let most, near, starts;
  most = Math.max(0, (before.length - STATE_END));
  near = range(Math.max(1, (most - STATE_END)), (most + 1));
  starts = list(near).filter((i) => ((most > 0) && (" \n".includes(before[(i - 1)]) || (before[i] === "<")))).map((i) => i);
  return slice(before, ((starts.length > 0) ? starts[(starts.length - 1)] : most), undefined).join("").replaceAll("\n", "\u21b5");
}

export function glyph_text(texts, glyphs, t) {
  return list(zip(texts, glyphs)).filter(([text, glyph]) => (glyph === glyphs[t])).map(([text, glyph]) => text).join("").replaceAll("\n", "\u21b5");
}

export function section_applies(section, facts, settings) {
  let missing;
  if (((section.id === "not_chosen") === facts["chosen"])) {
    return false;
  }
  if (((section.estimators != null) && !section.estimators.includes(settings["estimator"]))) {
    return false;
  }
  if (((section.losses != null) && !section.losses.includes((settings["policy_loss"] || "ppo")))) {
    return false;
  }
  missing = any(list(section.needs).map((name) => (facts[name] == null)));
  return (!(missing) && !(any(list(section.lacks).map((name) => (facts[name] != null)))));
}

export function section_case(rule, facts, columns, t) {
  let clipped, ending, flat, gap, number;
  if ((rule == null)) {
    return null;
  }
  if ((rule === "end")) {
    ending = (facts["bootstrap"] ? "bootstrapped" : "ended");
    return (facts["chosen_left"] ? "inside" : ending);
  }
  if ((rule === "policy")) {
    clipped = (at(columns, "clipped", t) ? "clipped" : "free");
    return (at(columns, "dual_clipped", t) ? "dual" : clipped);
  }
  if ((rule === "value")) {
    return (at(columns, "value_clipped", t) ? "clipped" : "free");
  }
  if ((rule === "ratio")) {
    gap = (facts["ratio"] - 1);
    return ((Math.abs(gap) < SMALL) ? "same" : ((gap > 0) ? "up" : "down"));
  }
  flat = (["advantage", "whitened"].includes(rule) ? facts["flat_credit"] : ((rule === "delta") && facts["flat"]));
  if (flat) {
    return "flat";
  }
  number = facts[rule];
  if (((rule === "kl") && (facts["old_log_prob"] != null) && (facts["ref_log_prob"] != null))) {
    number = (facts["old_log_prob"] - facts["ref_log_prob"]);
  }
  return ((Math.abs(number) < SMALL) ? "zero" : ((number > 0) ? "positive" : "negative"));
}

export function at(columns, name, t) {
  let column;
  column = (columns[name] ?? null);
  return ((column == null) ? null : column[t]);
}

export function without_gaps(column) {
  return ((column == null) ? null : list(column).map((x) => or_zero(x)));
}

export function or_zero(x) {
  return ((x == null) ? 0.0 : x);
}

export function product(a, b) {
  return (((a == null) || (b == null)) ? null : (a * b));
}

export function difference(a, b) {
  return (((a == null) || (b == null)) ? null : (a - b));
}

export function squared(x) {
  return ((x == null) ? null : (x * x));
}

export function clip(x, low, high) {
  return (((x == null) || (low == null) || (high == null)) ? null : Math.min(Math.max(x, low), high));
}

export function share_of(part, total, count) {
  if (((part == null) || (total == null))) {
    return null;
  }
  return (total ? (part / total) : (1.0 / Math.max(count, 1)));
}

export const ESTIMATORS = {
  "gae": {
    "kind": "recursion",
    "zh": "广义优势估计",
    "en": "generalised advantage estimation",
    "formula": "A_t = δ_t + γλ·A_{t+1}",
    "inputs": [
      "rewards",
      "values",
      "response_mask"
    ],
    "settings": [
      "gamma",
      "lam"
    ],
    "fixed_lambda": null,
    "whitens": true
  },
  "monte_carlo": {
    "kind": "recursion",
    "zh": "蒙特卡洛：实际回报减去价值",
    "en": "Monte Carlo: what really came less the value",
    "formula": "A_t = G_t − V(s_t),  G_t = Σ_k γ^k·r_{t+k}",
    "inputs": [
      "rewards",
      "values",
      "response_mask"
    ],
    "settings": [
      "gamma"
    ],
    "fixed_lambda": 1.0,
    "whitens": true
  },
  "td0": {
    "kind": "recursion",
    "zh": "TD(0)：优势就是 TD 误差",
    "en": "TD(0): the advantage is the TD error",
    "formula": "A_t = δ_t",
    "inputs": [
      "rewards",
      "values",
      "response_mask"
    ],
    "settings": [
      "gamma"
    ],
    "fixed_lambda": 0.0,
    "whitens": true
  },
  "n_step": {
    "kind": "window",
    "zh": "n 步：先取 n 个奖励，再接上价值",
    "en": "n steps: n rewards, then the critic",
    "formula": "A_t = Σ_{l<n} γ^l·δ_{t+l}",
    "inputs": [
      "rewards",
      "values",
      "response_mask"
    ],
    "settings": [
      "gamma",
      "n"
    ],
    "fixed_lambda": null,
    "whitens": true
  },
  "turn_gae": {
    "kind": "turns",
    "zh": "按轮的广义优势估计：一轮是一个动作，整轮共用一个优势",
    "en": "generalised advantage estimation over turns: a turn is one action, and its tokens share its advantage",
    "formula": "A_k = δ_k + γλ·A_{k+1},  δ_k = Σ_{t∈k} r_t + γ·V_{k+1} − V_k,  V_k = V(s_t) of the turn's first token",
    "inputs": [
      "rewards",
      "values",
      "response_mask",
      "turn"
    ],
    "settings": [
      "gamma",
      "lam"
    ],
    "fixed_lambda": null,
    "whitens": true
  },
  "uniform": {
    "kind": "share",
    "zh": "总奖励平均分",
    "en": "equal shares of the total reward",
    "formula": "A_t = w_t·Σ_j r_j,  Σ_t w_t = 1",
    "inputs": [
      "rewards",
      "response_mask"
    ],
    "settings": [],
    "fixed_lambda": null,
    "whitens": true
  },
  "last_k": {
    "kind": "share",
    "zh": "最后 k 个 token 平分总奖励",
    "en": "the last k tokens share the total reward",
    "formula": "A_t = w_t·Σ_j r_j,  Σ_t w_t = 1",
    "inputs": [
      "rewards",
      "response_mask"
    ],
    "settings": [
      "k"
    ],
    "fixed_lambda": null,
    "whitens": true
  },
  "attention": {
    "kind": "share",
    "zh": "按末 token 的注意力分总奖励",
    "en": "the total reward by what the last token attends to",
    "formula": "A_t = w_t·Σ_j r_j,  Σ_t w_t = 1",
    "inputs": [
      "rewards",
      "response_mask",
      "attention_weights"
    ],
    "settings": [],
    "fixed_lambda": null,
    "whitens": true
  },
  "grpo": {
    "kind": "group",
    "zh": "组内标准化：减组均值，除以组标准差",
    "en": "against its group: less the mean, over the standard deviation",
    "formula": "A_t = (R − mean)/(std + 10⁻⁶)",
    "inputs": [
      "rewards",
      "response_mask",
      "group"
    ],
    "settings": [],
    "fixed_lambda": null,
    "whitens": false
  },
  "dr_grpo": {
    "kind": "group",
    "zh": "只减组均值，不除标准差",
    "en": "less the group's mean, without the division",
    "formula": "A_t = R − mean",
    "inputs": [
      "rewards",
      "response_mask",
      "group"
    ],
    "settings": [],
    "fixed_lambda": null,
    "whitens": false
  },
  "rloo": {
    "kind": "group",
    "zh": "留一法：减同组其余回答的均值",
    "en": "leave one out: less the mean of the group's other samples",
    "formula": "A_t = R_i − mean_{j≠i} R_j",
    "inputs": [
      "rewards",
      "response_mask",
      "group"
    ],
    "settings": [],
    "fixed_lambda": null,
    "whitens": false
  },
  "opo": {
    "kind": "group",
    "zh": "最优基线：减组内按长度加权的均值",
    "en": "the optimal baseline: less the group's mean, weighted by length",
    "formula": "A_t = R − Σ_j n_j·R_j / Σ_j n_j",
    "inputs": [
      "rewards",
      "response_mask",
      "group"
    ],
    "settings": [],
    "fixed_lambda": null,
    "whitens": false
  },
  "reinforce_plus_plus": {
    "kind": "recursion",
    "zh": "从 t 起的折扣奖励，整批白化作基线",
    "en": "the discounted reward from t on; the batch's whitening is the baseline",
    "formula": "A_t = G_t = Σ_k γ^k·r_{t+k}",
    "inputs": [
      "rewards",
      "response_mask"
    ],
    "settings": [
      "gamma"
    ],
    "fixed_lambda": null,
    "whitens": true
  },
  "remax": {
    "kind": "recursion",
    "zh": "从 t 起的奖励，减去贪心回答的得分作基线",
    "en": "the reward from t on, less what the greedy answer to the prompt earned",
    "formula": "A_t = Σ_k r_{t+k} − b,  b = score of the greedy answer",
    "inputs": [
      "rewards",
      "response_mask",
      "greedy_score"
    ],
    "settings": [],
    "fixed_lambda": null,
    "whitens": false
  }
} as const;

export const POLICY_LOSSES = {
  "ppo": {
    "zh": "PPO 的裁剪损失",
    "en": "PPO's clipped loss",
    "formula": "L^π_t = −min(ρ_t·Â_t, clip(ρ_t, 1−ε_low, 1+ε_high)·Â_t)",
    "settings": [
      "clip_low",
      "clip_high",
      "dual_clip"
    ]
  },
  "cpi": {
    "zh": "TRPO 的代理目标，不裁剪",
    "en": "TRPO's surrogate, without a clip",
    "formula": "L^π_t = −ρ_t·Â_t",
    "settings": []
  },
  "gspo": {
    "zh": "整条回答一个比值（GSPO）",
    "en": "one ratio for the whole response (GSPO)",
    "formula": "L^π_t = −min(s·Â_t, clip(s, 1−ε_low, 1+ε_high)·Â_t),  s = exp(mean_t log ρ_t)",
    "settings": [
      "clip_low",
      "clip_high"
    ]
  },
  "cispo": {
    "zh": "裁剪重要性权重，梯度只经过 log π（CISPO）",
    "en": "clipped importance weights, the gradient through log π alone (CISPO)",
    "formula": "L^π_t = −sg[clip(ρ_t, 1−ε_low, 1+ε_high)]·Â_t·log π(y_t)",
    "settings": [
      "clip_low",
      "clip_high"
    ]
  }
} as const;

export const AGGREGATIONS = {
  "token-mean": {
    "zh": "每个 token 权重相同",
    "en": "every token counts the same"
  },
  "seq-mean-token-sum": {
    "zh": "每行权重相同，行内求和",
    "en": "every row counts the same, its tokens summed"
  },
  "seq-mean-token-mean": {
    "zh": "每行权重相同，行内平均",
    "en": "every row counts the same, its tokens averaged"
  },
  "seq-mean-token-sum-norm": {
    "zh": "每行权重相同，行内求和再除以常数（Dr. GRPO）",
    "en": "every row counts the same, its tokens summed and divided by a constant (Dr. GRPO)"
  },
  "token-sum": {
    "zh": "所有 token 直接求和，不做平均",
    "en": "all tokens summed, nothing averaged"
  }
} as const;

export const GAE = "gae";
export const MONTE_CARLO = "monte_carlo";
export const FENCED = "+−·/"; // a negative number behind one of these stands in parentheses
export const EPSILON = 1e-08; // what whitening adds to the variance
type Twins = Record<string, (...given: any[]) => any>;
export const ESTIMATE: Twins = { gae, monte_carlo, td0, n_step, turn_gae, uniform, last_k, attention, grpo, dr_grpo, rloo, opo, reinforce_plus_plus, remax };

export const POLICY_LOSS: Twins = { ppo, cpi, gspo, cispo };

export const KL = {
  k1: ((x) => x),
  kl: ((x) => x),
  abs: Math.abs,
  k2: ((x) => ((x * x) / 2)),
  mse: ((x) => ((x * x) / 2)),
  k3: ((x) => (((Math.E ** (-x)) - 1) + x)),
  low_var_kl: ((x) => (((Math.E ** (-x)) - 1) + x)),
};
