/** Monte Carlo and GAE side by side: this rollout's advantages, and how much they vary over the group. */
import { useWidth } from "./canvas";
import { estimate, varianceOverRows } from "./credit";
import { GAE, MONTE_CARLO } from "./specs.generated";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import type { Group } from "./whatif";

const H = 150;

export function CompareMonteCarlo({ group, gamma, lam }: { group: Group; gamma: number; lam: number }) {
  const { say } = usePrefs();
  const sides = [
    { name: `GAE, λ = ${number(lam, 3)}`, advantages: estimate(GAE, group, { gamma, lam }).advantages },
    { name: say("蒙特卡洛，λ = 1", "Monte Carlo, λ = 1"), advantages: estimate(MONTE_CARLO, group, { gamma, lam }).advantages },
  ].map((side) => ({ ...side, variance: varianceOverRows(side.advantages, group.mask) }));
  const slots = group.mask[0].flatMap((m, t) => (m ? [t] : []));
  const reach = sides.flatMap(({ advantages, variance }) =>
    slots.flatMap((t) => {
      const spread = Math.sqrt(variance[t] ?? 0);
      return [advantages[0][t] - spread, advantages[0][t] + spread];
    }),
  );
  const low = Math.min(0, ...reach);
  const high = Math.max(1e-9, ...reach);
  return (
    <div class="side-by-side">
      {sides.map((side, i) => (
        <figure key={i} class="compare">
          <figcaption>
            <b>{side.name}</b>
            <span class="muted">
              {say("组内方差（逐位置平均）", "variance over the group, mean over positions")}{" "}
              <span class="filled" data-variance={i ? MONTE_CARLO : GAE}>
                {number(meanOf(side.variance))}
              </span>
            </span>
          </figcaption>
          <Band advantages={side.advantages[0]} variance={side.variance} slots={slots} low={low} high={high} />
        </figure>
      ))}
    </div>
  );
}

const meanOf = (xs: (number | null)[]): number | null => {
  const there = xs.filter((x): x is number => x !== null);
  return there.length ? there.reduce((a, b) => a + b, 0) / there.length : null;
};

interface BandProps {
  advantages: number[];
  variance: (number | null)[];
  slots: number[];
  low: number;
  high: number;
}

function Band({ advantages, variance, slots, low, high }: BandProps) {
  const { say } = usePrefs();
  const [ref, width] = useWidth<HTMLDivElement>();
  const x = (i: number) => 40 + (i + 0.5) * ((Math.max(width, 120) - 46) / Math.max(slots.length, 1));
  const y = (v: number) => 8 + (1 - (v - low) / (high - low)) * (H - 16);
  const line = slots.map((t, i) => `${x(i).toFixed(1)},${y(advantages[t]).toFixed(1)}`).join(" ");
  const edge = (sign: number) =>
    slots.map((t, i) => `${x(i).toFixed(1)},${y(advantages[t] + sign * Math.sqrt(variance[t] ?? 0)).toFixed(1)}`);
  return (
    <div ref={ref}>
      <svg width={width} height={H} role="img" aria-label={say("优势与组内标准差", "advantages and their spread over the group")}>
        <line x1={40} x2={width} y1={y(0)} y2={y(0)} class="axis" />
        <text x={36} y={y(0) + 4} class="tick">0</text>
        {[high, low].filter((v) => Math.abs(y(v) - y(0)) > 11).map((v) => (
          <text key={v} x={36} y={y(v) + 4} class="tick">{number(v, 2)}</text>
        ))}
        <polygon points={[...edge(1), ...edge(-1).reverse()].join(" ")} class="band" />
        <polyline points={line} class="curve" />
        {slots.length <= 60 && slots.map((t, i) => <circle key={t} cx={x(i)} cy={y(advantages[t])} r={2.5} class="dot" />)}
      </svg>
    </div>
  );
}
