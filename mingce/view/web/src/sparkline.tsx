/** A curve the size of a word. */
import type { Num } from "./types";

export function Sparkline({ values, width = 120, height = 26 }: { values: readonly Num[]; width?: number; height?: number }) {
  const there = values.flatMap((v, i) => (v === null ? [] : [[i, v] as const]));
  if (there.length < 2) return <svg class="spark" viewBox={`0 0 ${width} ${height}`} width={width} height={height} aria-hidden="true" />;
  const numbers = there.map(([, v]) => v);
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const x = (i: number) => 2 + (i / (values.length - 1)) * (width - 6);
  const y = (v: number) => height - 3 - (high > low ? (v - low) / (high - low) : 0.5) * (height - 6);
  const [lastIndex, lastValue] = there[there.length - 1];
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} width={width} height={height} aria-hidden="true">
      <polyline points={there.map(([i, v]) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ")} />
      <circle cx={x(lastIndex)} cy={y(lastValue)} r={2.5} />
    </svg>
  );
}
