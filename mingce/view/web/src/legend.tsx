/** The colour scale with its numbers. */
import { gradient } from "./colours";
import { sideOf } from "./derived";
import { brief } from "./numbers";
import { usePrefs } from "./prefs";

export interface LegendProps {
  limit: number;
  symbol: string;
  /** The column, of which some lie on one side of 0. */
  column?: string;
}

export function Legend({ limit, symbol, column = "" }: LegendProps) {
  const { dark } = usePrefs();
  const side = sideOf(column);
  const ticks = [side > 0 ? "" : `−${brief(limit)}`, "0", side < 0 ? "" : `+${brief(limit)}`].filter(Boolean);
  const half = side === 0 ? {} : { backgroundSize: "200% 100%", backgroundPosition: side > 0 ? "right" : "left" };
  return (
    <div class="legend" role="img" aria-label={`${symbol}: ${ticks.join(" … ")}`}>
      <span class="legend-bar" style={{ backgroundImage: gradient(dark), ...half }} />
      <span class="legend-ticks">{ticks.map((tick) => <span key={tick}>{limit > 0 || tick === "0" ? tick : ""}</span>)}</span>
    </div>
  );
}
