/** A chart over steps: uPlot with the page's colours; a click goes to the step. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { ink, useWidth } from "./canvas";
import { seriesColours } from "./colours";
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
  label: string;
}

export function Chart({ steps, lines, height = 170, onPick, onRange, every = 1, label }: ChartProps) {
  const { dark } = usePrefs();
  const [ref, width] = useWidth<HTMLDivElement>();
  const pick = useRef(onPick);
  pick.current = onPick;
  const zoom = useRef(onRange);
  zoom.current = onRange;
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
    const chart = new uPlot(
      {
        width,
        height,
        legend: { show: false },
        cursor: { sync: { key: "steps", setSeries: false }, points: { size: 7 }, drag: { x: onRange !== undefined, y: false, setScale: false } },
        scales: { x: { time: false }, y: { range: padded } },
        axes: [
          { ...axis, size: 26, space: 48, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
          { ...axis, size: 52, space: 34, values: (_, ticks) => ticks.map(brief) },
        ],
        series: [
          {},
          ...lines.map((line, i) => ({
            label: line.name,
            stroke: colours[i % colours.length],
            width: 1.75,
            spanGaps: true,
            points: { show: few, size: 5 },
          })),
        ],
        hooks: {
          setCursor: [(u: uPlot) => readout(ref.current, u, lines, every)],
          setSelect: [
            (u: uPlot) => {
              const [from, to] = [u.select.left, u.select.left + u.select.width].map((x) => Math.max(0, Math.round(u.posToVal(x, "x"))));
              if (u.select.width > 4 && to > from) zoom.current?.([from, to]);
            },
          ],
        },
      },
      [steps as number[], ...lines.map((line) => line.values as Num[])] as uPlot.AlignedData,
      ref.current,
    );
    const click = () => {
      const index = chart.cursor.idx;
      if (index !== null && index !== undefined) pick.current?.(steps[index]);
    };
    chart.over.addEventListener("click", click);
    return () => chart.destroy();
  }, [width, height, dark, steps, lines, every]);
  return <div class={onPick ? "chart pickable" : "chart"} ref={ref} role="img" aria-label={label} />;
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

function padded(_: uPlot, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const room = high - low || Math.abs(high) || 1;
  return [low - 0.06 * room, high + 0.06 * room];
}
