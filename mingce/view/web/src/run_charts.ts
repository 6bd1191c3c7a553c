/** Which metrics share a chart, and which come first. */
import type { Run } from "./types";

export interface ChartPlan {
  names: string[];
}

const FIRST: (string | RegExp)[][] = [
  ["critic/score/mean", "val/accuracy_sampled", "val/accuracy_greedy"],
  [/^score\//],
  [/^critic\/score\/mean\//],
  [/^val\/accuracy_sampled\//],
  ["critic/kl"],
  ["actor/entropy"],
  ["critic/vf_loss"],
  ["critic/vf_explained_var"],
  ["actor/pg_clipfrac", "critic/vf_clipfrac"],
  ["actor/pg_loss"],
  ["response_length/mean", "response_length/min", "response_length/max"],
  [/^timing_s\//],
];
const MOST = 10; // lines in one chart, each of a colour of its own
const MOST_TIMES = 6;

/** The charts that everyone looks at, then one for each of the other metrics; of several runs, what any of them has. */
export function plan(...runs: Run[]): { first: ChartPlan[]; rest: ChartPlan[] } {
  const names = runs.flatMap((run) => Object.keys(run.series).filter((name) => run.series[name].some((value) => value !== null)));
  const there = [...new Set(names)];
  const first = FIRST.map((wanted) => {
    const names = wanted.flatMap((one) => there.filter((name) => (typeof one === "string" ? one === name : one.test(name))));
    return { names: names[0]?.startsWith("timing_s/") ? longest(names, runs) : names.slice(0, MOST) };
  }).filter((chart) => chart.names.length > 0);
  const used = new Set(first.flatMap((chart) => chart.names));
  const rest = there.filter((name) => !used.has(name)).sort().map((name) => ({ names: [name] }));
  return { first, rest };
}

/** Where the time goes: the stages that take most of it. */
function longest(names: string[], runs: Run[]): string[] {
  const spent = (name: string) => runs.reduce((sum, run) => sum + (run.series[name] ?? []).reduce<number>((all, one) => all + (one ?? 0), 0), 0);
  return names.map((name) => [name, spent(name)] as const).sort((a, b) => b[1] - a[1]).slice(0, MOST_TIMES).map(([name]) => name);
}
