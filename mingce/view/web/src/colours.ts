/** A diverging scale around 0 that colour-blind people can read: orange below, blue above, paper in the middle. */

type RGB = readonly [number, number, number];

const LIGHT: readonly RGB[] = [[160, 72, 4], [224, 130, 20], [253, 198, 125], [246, 244, 239], [158, 202, 225], [74, 144, 194], [23, 88, 150]];
const DARK: readonly RGB[] = [[255, 170, 80], [206, 116, 30], [122, 70, 26], [38, 41, 48], [30, 72, 112], [50, 122, 184], [120, 190, 245]];

function mix(stops: readonly RGB[], place: number): RGB {
  const at = Math.min(Math.max(place, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  const share = at - low;
  return stops[low].map((x, i) => Math.round(x + share * (stops[low + 1][i] - x))) as unknown as RGB;
}

/** The colour of `x` on a scale that reaches from −limit to limit. */
export function rgb(x: number, limit: number, dark: boolean): RGB {
  const place = limit > 0 ? 0.5 + (0.5 * x) / limit : 0.5;
  return mix(dark ? DARK : LIGHT, place);
}

const BLACK = 0.179; // the luminance from which black reads better than white: either at 4.5 : 1 at least
const SOFT = 0.25; // and from which the page's own ink does

/** Background and the ink that reads on it. */
export function paint(x: number | null, limit: number, dark: boolean): { background: string; color: string } {
  if (x === null || !Number.isFinite(x)) return { background: "transparent", color: "inherit" };
  const [r, g, b] = rgb(x, limit, dark);
  const light = 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  return { background: `rgb(${r} ${g} ${b})`, color: light < BLACK ? "#ffffff" : light < SOFT ? "#000000" : "#16181d" };
}

function linear(channel: number): number {
  const c = channel / 255;
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}

/** The scale as a gradient for the legend. */
export function gradient(dark: boolean): string {
  return `linear-gradient(to right, ${(dark ? DARK : LIGHT).map((c) => `rgb(${c.join(" ")})`).join(", ")})`;
}

/** Lines that are told apart by eye and by their dashes: Okabe and Ito's colours, lighter on a dark page. */
export function lineColours(dark: boolean): Record<string, string> {
  return dark
    ? { values: "#56b4e9", returns: "#e69f00", rewards: "#9aa3b2", deltas: "#cc79a7", advantages: "#3fc9a0", rollout_log_probs: "#e69f00", old_log_probs: "#56b4e9", log_prob_gap: "#cc79a7" }
    : { values: "#0072b2", returns: "#c46a00", rewards: "#7b8494", deltas: "#b0508a", advantages: "#00795a", rollout_log_probs: "#c46a00", old_log_probs: "#0072b2", log_prob_gap: "#b0508a" };
}

export function seriesColours(dark: boolean): string[] {
  return dark
    ? ["#56b4e9", "#e69f00", "#3fc9a0", "#cc79a7", "#f0e442", "#d55e00", "#9aa3b2", "#8da0ff", "#b7e07a", "#ff9da7"]
    : ["#0072b2", "#c46a00", "#00795a", "#b0508a", "#8a7a00", "#b03a00", "#6b7280", "#4a5bd0", "#4d7c0f", "#c0356b"];
}
