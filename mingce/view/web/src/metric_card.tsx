/** A chart with its names, its meaning and what lies beyond its scale. */
import { useMemo } from "preact/hooks";
import { Chart, type Line } from "./chart";
import { seriesColours } from "./colours";
import { fit, type CurveLook } from "./curves";
import { Formula } from "./math";
import { brief } from "./numbers";
import { usePrefs } from "./prefs";
import type { MetricText } from "./types";

export interface MetricCardProps {
  /** The metrics of the chart; the first names it. */
  names: string[];
  metrics: readonly MetricText[];
  steps: readonly number[];
  lines: readonly Line[];
  look: CurveLook;
  every?: number;
  onPick?: (step: number) => void;
  onRange?: (range: [number, number]) => void;
  onFull: () => void;
}

export function MetricCard({ names, metrics, steps, lines, look, every = 1, onPick, onRange, onFull }: MetricCardProps) {
  const { say, pick, dark } = usePrefs();
  const colours = seriesColours(dark);
  const fitted = useMemo(() => (look.full ? undefined : fit(lines.map((line) => ({ ...line, name: names[0] })))), [lines, look.full, names[0]]);
  const texts = names.map((name) => meaning(metrics, name));
  const shared = new Set(texts.map((text) => text && pick(text))).size === 1 ? texts[0] : null;
  const first = fitted?.strays[0];
  return (
    <figure class="card chart-card" data-metric={names[0]}>
      <figcaption>
        <ul class="metric-names">
          {names.map((name, i) => (
            <li key={name}>
              {names.length === lines.length && <span class="key-line" style={{ background: colours[i % colours.length] }} />}
              <code>{name}</code>
            </li>
          ))}
        </ul>
        <span class="readout" data-readout />
      </figcaption>
      <Chart {...{ steps, lines, every, onPick, onRange }} smooth={look.smooth} fit={fitted}
        label={say(`${names[0]} 随步数变化；← → 移动，回车进入那一步`, `${names[0]} over steps; ← → move, Enter opens the step`)} />
      {first && (
        <p class="strays" data-strays={fitted!.strays.length}>
          {say(
            `${fitted!.strays.length} 个点在刻度之外，如第 ${steps[first.index]} 步的 ${brief(first.value)}。`,
            `${fitted!.strays.length} ${fitted!.strays.length === 1 ? "point lies" : "points lie"} beyond the scale, such as ${brief(first.value)} at step ${steps[first.index]}.`,
          )}{" "}
          <button type="button" class="plain link" onClick={onFull}>{say("全部显示", "Show all")}</button>
        </p>
      )}
      <div class="meaning">
        {shared ? (
          <p>{pick(shared)}</p>
        ) : (
          texts.map((text, i) => text && (
            <p key={names[i]}>
              <code>{names[i].split("/").slice(1).join("/")}</code> {pick(text)}
            </p>
          ))
        )}
        {texts[0]?.formula && (
          <p class="muted">
            <Formula formula={say(texts[0].formula_zh, texts[0].formula)} />
          </p>
        )}
      </div>
    </figure>
  );
}

/** A metric's text, or that of the family it belongs to (`timing_s/<stage>`). */
function meaning(metrics: readonly MetricText[], name: string): MetricText | null {
  const family = `${name.split("/")[0]}/<`;
  return metrics.find((one) => one.name === name) ?? metrics.find((one) => one.name.startsWith(family)) ?? null;
}

/** Smoothing, and whether every point is in sight. */
export function CurveBar({ look, onChange }: { look: CurveLook; onChange: (look: CurveLook) => void }) {
  const { say } = usePrefs();
  return (
    <div class="curve-bar">
      <label>
        {say("平滑", "Smoothing")}
        <input type="range" min={0} max={0.98} step={0.02} value={look.smooth} data-setting="smooth"
          onInput={(event) => onChange({ ...look, smooth: Number(event.currentTarget.value) })} />
        <output>{look.smooth.toFixed(2)}</output>
      </label>
      <label>
        <input type="checkbox" checked={look.full} data-setting="full" onChange={(event) => onChange({ ...look, full: event.currentTarget.checked })} />
        {say("显示离群点", "Stray points in sight")}
      </label>
    </div>
  );
}
