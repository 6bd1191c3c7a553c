/** A chart over steps: uPlot with the page's colours. A click, or Enter at the place of the arrow keys, goes to the step. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { ink, useWidth } from "./canvas";
import { seriesColours } from "./colours";
import { smoothed, type Fit } from "./curves";
import { brief } from "./numbers";
import { usePrefs } from "./prefs";
import type { Num } from "./types";

export interface Line {
  name: string;
  values: readonly Num[];
}

export interface ChartProps {
  steps: readonly number[];
  lines: readonly Line[];
  height?: number;
  onPick?: (step: number) => void;
  /** Told the first and the last step over which the pointer was dragged. */
  onRange?: (range: [number, number]) => void;
  /** How many steps two neighbouring points stand for. */
  every?: number;
  smooth?: number;
  /** Where not all points are in sight, which are and which are not. */
  fit?: Fit;
  label: string;
}

export function Chart({ steps, lines, height = 170, onPick, onRange, every = 1, smooth = 0, fit, label }: ChartProps) {
  const { dark } = usePrefs();
  const [ref, width] = useWidth<HTMLDivElement>();
  const pick = useRef(onPick);
  pick.current = onPick;
  const zoom = useRef(onRange);
  zoom.current = onRange;
  const drawn = useRef<uPlot | null>(null);
  useEffect(() => {
    if (!ref.current || width === 0) return;
    const colour = ink(dark);
    const colours = seriesColours(dark);
    const axis = {
      stroke: colour.muted,
      grid: { stroke: colour.line, width: 1 },
      ticks: { stroke: colour.line, width: 1, size: 4 },
      font: "11px system-ui",
    };
    const few = steps.length <= 60;
    const look = (line: Line, i: number) => ({ label: line.name, stroke: colours[i % colours.length], spanGaps: true });
    const behind = lines.map((line, i) => ({ ...look(line, i), width: 1, alpha: 0.3, points: { show: few, size: 3 } }));
    const before = lines.map((line, i) => ({ ...look(line, i), width: 1.75, points: { show: few && !smooth, size: 5 } }));
    const chart = new uPlot(
      {
        width,
        height,
        legend: { show: false },
        cursor: { sync: { key: "steps", setSeries: false }, points: { size: 7 }, drag: { x: onRange !== undefined, y: false, setScale: false } },
        scales: { x: { time: false }, y: { range: (_, low, high) => padded(fit?.range ?? [low, high]) } },
        axes: [
          { ...axis, size: 26, space: 48, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
          { ...axis, size: (_, shown) => Math.max(52, 14 + 6.5 * Math.max(0, ...(shown ?? []).map((text) => text.length))), space: 34, values: (_, ticks) => ticks.map(brief) },
        ],
        series: [{}, ...(smooth ? behind : []), ...before],
        hooks: {
          draw: [(u: uPlot) => fit && strays(u, fit, colours)],
          setCursor: [(u: uPlot) => readout(ref.current, u, lines, every)],
          setSelect: [
            (u: uPlot) => {
              const [from, to] = [u.select.left, u.select.left + u.select.width].map((x) => Math.max(0, Math.round(u.posToVal(x, "x"))));
              if (u.select.width > 4 && to > from) zoom.current?.([from, to]);
            },
          ],
        },
      },
      [
        steps as number[],
        ...(smooth ? lines.map((line) => line.values as Num[]) : []),
        ...lines.map((line) => (smooth ? smoothed(line.values, smooth) : (line.values as Num[]))),
      ] as uPlot.AlignedData,
      ref.current,
    );
    drawn.current = chart;
    const click = () => {
      const index = chart.cursor.idx;
      if (index !== null && index !== undefined) pick.current?.(steps[index]);
    };
    chart.over.addEventListener("click", click);
    return () => {
      drawn.current = null;
      chart.destroy();
    };
  }, [width, height, dark, steps, lines, every, smooth, fit]);
  const pressed = (event: KeyboardEvent) => {
    const chart = drawn.current;
    if (!chart || steps.length === 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const now = chart.cursor.idx ?? null;
    if (event.key === "Enter" && now !== null) pick.current?.(steps[now]);
    const last = steps.length - 1;
    const places: Record<string, number> = { ArrowLeft: (now ?? steps.length) - 1, ArrowRight: (now ?? -1) + 1, Home: 0, End: last };
    const next = places[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const at = Math.min(Math.max(next, 0), last);
    chart.setCursor({ left: chart.valToPos(steps[at], "x"), top: chart.over.clientHeight / 2 });
  };
  return <div class={onPick ? "chart pickable" : "chart"} ref={ref} role="img" aria-label={label} tabIndex={0} onKeyDown={pressed} />;
}

/** Arrowheads at the edge for the points beyond it. */
function strays(chart: uPlot, { range, strays }: Fit, colours: string[]): void {
  if (!range) return;
  const { ctx, bbox } = chart;
  const size = 5 * devicePixelRatio;
  for (const { line, index, value } of strays) {
    const x = chart.valToPos(chart.data[0][index], "x", true);
    const up = value > range[1];
    const tip = up ? bbox.top + 1 : bbox.top + bbox.height - 1;
    const base = tip + (up ? size : -size);
    ctx.fillStyle = colours[line % colours.length];
    ctx.beginPath();
    ctx.moveTo(x, tip);
    ctx.lineTo(x - 0.8 * size, base);
    ctx.lineTo(x + 0.8 * size, base);
    ctx.fill();
  }
}

/** The numbers under the cursor, in the corner of the card. */
function readout(box: HTMLElement | null, chart: uPlot, lines: readonly Line[], every: number): void {
  const place = box?.parentElement?.querySelector<HTMLElement>("[data-readout]");
  if (!place) return;
  const index = chart.cursor.idx;
  const shown = index === null || index === undefined ? [] : lines.map((line) => brief(line.values[index]));
  place.textContent = shown.length ? `${stepsAt(chart.data[0], index!, every)}: ${shown.join(" · ")}` : "";
}

/** The step of a point, or the steps that it stands for with its neighbour. */
function stepsAt(steps: ArrayLike<number>, index: number, every: number): string {
  const start = index - (index % 2);
  if (every === 1 || index === steps.length - 1 || start + 2 >= steps.length) return String(steps[index]);
  return `${steps[start]}–${steps[start + 2] - 1}`;
}

function padded([low, high]: [number | null, number | null]): [number, number] {
  if (low === null || high === null) return [0, 1];
  const room = high - low || Math.abs(high) || 1;
  return [low - 0.06 * room, high + 0.06 * room];
}
