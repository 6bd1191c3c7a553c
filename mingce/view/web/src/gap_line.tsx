/** How far the engine that sampled and the trainer are apart over a whole response, in one line. */
import { GAP } from "./derived";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import type { Columns } from "./types";

export function GapLine({ columns, onSelect }: { columns: Columns; onSelect: (t: number) => void }) {
  const { say } = usePrefs();
  const mask = columns.response_mask;
  const there = columns[GAP].flatMap((gap, t) => (gap === null || (mask && !mask[t]) ? [] : [{ t, size: Math.abs(gap) }]));
  if (!there.length) return null;
  const mean = there.reduce((sum, one) => sum + one.size, 0) / there.length;
  const most = there.reduce((a, b) => (b.size > a.size ? b : a));
  return (
    <p class="gap-line" role="note">
      {say("平均", "Mean")} |g| <b>{number(mean)}</b>
      {say("，最大", ", largest")} <b>{number(most.size)}</b>{" "}
      <button type="button" class="plain link" onClick={() => onSelect(most.t)}>t = {most.t}</button>
      {say("。两边算的是同一个模型时应当几乎为 0。", ". Where both compute one model it is nearly 0.")}
    </p>
  );
}
