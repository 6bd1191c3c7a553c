/** How curves are drawn: smoothed, and on a scale that a few stray points do not flatten; both kept in the address. */
import type { Num } from "./types";

export interface CurveLook {
  /** Weight of what came before, 0 … 0.99. */
  smooth: number;
  /** All points are in sight, however far off. */
  full: boolean;
}

export const SMOOTHEST = 0.99;

export function readLook(query: URLSearchParams): CurveLook {
  const smooth = Number(query.get("smooth") ?? 0);
  return { smooth: smooth > 0 && smooth <= SMOOTHEST ? smooth : 0, full: query.get("scale") === "full" };
}

/** Only what differs from the usual. */
export const writtenLook = ({ smooth, full }: CurveLook): Record<string, string | null> => ({
  smooth: smooth ? String(smooth) : null,
  scale: full ? "full" : null,
});

/** The running mean in which each earlier point counts `weight` times as much, without a start at 0; gaps stay gaps. */
export function smoothed(values: readonly Num[], weight: number): Num[] {
  let [sum, count] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + value;
    count = weight * count + 1;
    return sum / count;
  });
}

export interface Stray {
  line: number;
  index: number;
  value: number;
}

export interface Fit {
  /** Null where all points fit as they are. */
  range: [number, number] | null;
  strays: Stray[];
}

const STRAYS = 0.05; // of all points may be out of sight
const FEWEST = 5; // points below which none is called stray
const FLATTENED = 4; // times as large a range is needed with the strays as without
const LEARNING = /score|accuracy|reward/; // a steep start is what these curves are looked at for

/** The narrowest range of nearly all points, if the few others would flatten the rest. */
export function fit(lines: readonly { name: string; values: readonly Num[] }[]): Fit {
  const all = lines.flatMap(({ values }) => values.filter((value): value is number => value !== null)).sort((a, b) => a - b);
  const whole: Fit = { range: null, strays: [] };
  const longest = Math.max(0, ...lines.map(({ values }) => values.filter((value) => value !== null).length));
  if (longest < FEWEST || lines.some(({ name }) => LEARNING.test(name))) return whole;
  const kept = all.length - Math.max(1, Math.floor(STRAYS * all.length));
  let [low, high] = [all[0], all[all.length - 1]];
  const span = high - low;
  for (let i = 0; i + kept <= all.length; i++) {
    if (all[i + kept - 1] - all[i] < high - low) [low, high] = [all[i], all[i + kept - 1]];
  }
  const usual = all[Math.floor(all.length / 2)];
  const still = all.filter((value) => value === usual).length > all.length / 2; // then what strays is all there is to see
  if (still || high === low || span < FLATTENED * (high - low)) return whole;
  const room = high - low; // what is hardly farther off is no stray
  const near = all.filter((value) => value >= low - room && value <= high + room);
  [low, high] = [near[0], near[near.length - 1]];
  const strays = lines.flatMap(({ values }, line) =>
    values.flatMap((value, index) => (value !== null && (value < low || value > high) ? [{ line, index, value }] : [])),
  );
  const hidden = lines.some(({ values }, line) => {
    const out = strays.filter((stray) => stray.line === line).length;
    return out > 0 && 2 * out > values.filter((value) => value !== null).length; // a line that lies there is no stray
  });
  return strays.length && !hidden ? { range: [low, high], strays } : whole;
}
