/** The colour scale with its numbers. */
import { gradient } from "./colours";
import { brief } from "./numbers";
import { usePrefs } from "./prefs";

export function Legend({ limit, symbol }: { limit: number; symbol: string }) {
  const { dark } = usePrefs();
  return (
    <div class="legend" role="img" aria-label={`${symbol}: −${brief(limit)} … 0 … ${brief(limit)}`}>
      <span class="legend-bar" style={{ background: gradient(dark) }} />
      <span class="legend-ticks">
        <span>{limit > 0 ? `−${brief(limit)}` : ""}</span>
        <span>0</span>
        <span>{limit > 0 ? `+${brief(limit)}` : ""}</span>
      </span>
    </div>
  );
}
