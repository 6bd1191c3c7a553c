/** How many fell where. */
import { brief } from "./numbers";
import { usePrefs } from "./prefs";
import type { Histogram as Counts } from "./types";

const W = 320;
const H = 110;

export function Histogram({ title, symbol, data }: { title: string; symbol: string; data: Counts }) {
  const { say } = usePrefs();
  const { edges, counts, of } = data;
  const most = Math.max(1, ...counts);
  const [low, high] = [edges[0] ?? 0, edges.at(-1) ?? 1];
  const only = counts.length === 1 ? (low + high) / 2 : null; // all numbers are one and the same
  const x = (v: number) => 4 + (high > low ? (v - low) / (high - low) : 0.5) * (W - 8);
  const unit = of === "rollout" ? say("条回答", "rollouts") : say("个 token", "tokens");
  return (
    <figure class="card histogram">
      <figcaption>
        <b>{title}</b> <span class="muted">{symbol}</span>
      </figcaption>
      <svg viewBox={`0 0 ${W} ${H + 18}`} role="img" aria-label={`${title}: ${brief(low)} … ${brief(high)}`}>
        {counts.map((count, i) => {
          const tall = (count / most) * (H - 6);
          const [from, end] = only === null ? [x(edges[i]), x(edges[i + 1])] : [x(only) - 4, x(only) + 4];
          return (
            <rect key={i} x={from + 0.5} y={H - tall} width={Math.max(1, end - from - 1)} height={tall} rx={1.5}>
              <title>{only === null ? `${brief(edges[i])} … ${brief(edges[i + 1])}: ${count} ${unit}` : `${brief(only)}: ${count} ${unit}`}</title>
            </rect>
          );
        })}
        <line x1={0} x2={W} y1={H + 0.5} y2={H + 0.5} class="axis" />
        {only !== null && <text x={x(only)} y={H + 14} class="tick middle">{say(`都是 ${brief(only)}`, `all are ${brief(only)}`)}</text>}
        {only === null && <Ends {...{ low, high, x }} />}
      </svg>
    </figure>
  );
}

function Ends({ low, high, x }: { low: number; high: number; x: (v: number) => number }) {
  return (
    <>
      {low < 0 && high > 0 && <line x1={x(0)} x2={x(0)} y1={0} y2={H} class="zero" />}
      <text x={4} y={H + 14} class="tick start">{brief(low)}</text>
      {x(0) > 60 && x(0) < W - 60 && <text x={x(0)} y={H + 14} class="tick middle">0</text>}
      <text x={W - 4} y={H + 14} class="tick">{brief(high)}</text>
    </>
  );
}
