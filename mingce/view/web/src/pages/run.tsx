/** One run: charts over its steps, each with what it means; a click on a point goes to the step. */
import { useMemo, useState } from "preact/hooks";
import { exported, paths, useData, useNews } from "../api";
import { Chart } from "../chart";
import { seriesColours } from "../colours";
import { Await } from "../loading";
import { Formula } from "../math";
import { Notices } from "../notices";
import { usePrefs } from "../prefs";
import { go, to } from "../route";
import { plan, type ChartPlan } from "../run_charts";
import { StatusMark } from "../status";
import type { Run as RunData } from "../types";

export function Run({ id }: { id: string }) {
  const [live, setLive] = useState(true);
  const news = useNews(id, live);
  const [range, setRange] = useState<Range | null>(null);
  const whole = useData<RunData>(paths.run(id), news);
  const part = useData<RunData>(range && paths.range(id, range), news);
  const run = range && part.data ? part : whole;
  const training = run.data?.status === "training";
  if (run.data && training !== live) setLive(training);
  return (
    <main>
      <Await of={run}>{(data) => <Charts id={id} run={data} range={range} onRange={setRange} />}</Await>
    </main>
  );
}

type Range = [number, number];

interface ChartsProps {
  id: string;
  run: RunData;
  range: Range | null;
  onRange: (range: Range | null) => void;
}

function Charts({ id, run, range, onRange }: ChartsProps) {
  const { say } = usePrefs();
  const { first, rest } = useMemo(() => plan(run), [run]);
  const [all, setAll] = useState(false);
  return (
    <>
      <header class="page-head">
        <h1>{run.name}</h1>
        <StatusMark status={run.status} />
        <StepJump id={id} steps={run.ledger_steps} />
      </header>
      <Notices run={run} />
      <p class="muted hint">
        {say("点图上的点进入那一步。", "Click a point to open its step.")}
        {run.every > 1 && !exported && (
          <> {say(`每 ${run.every} 步画出最小与最大值；横向拖动可放大。`, `Of every ${run.every} steps the least and the greatest value is drawn; drag across a chart to zoom in.`)}</>
        )}
        {range && (
          <button type="button" class="tag" onClick={() => onRange(null)}>
            {say(`第 ${range[0]}–${range[1]} 步`, `steps ${range[0]}–${range[1]}`)} ✕
          </button>
        )}
      </p>
      <div class="chart-grid">
        {first.map((chart) => (
          <MetricCard key={chart.names[0]} id={id} run={run} chart={chart} onRange={onRange} />
        ))}
      </div>
      {rest.length > 0 && (
        <button type="button" class="more" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? say("收起", "Fewer") : say(`其余 ${rest.length} 个指标`, `${rest.length} more metrics`)}
        </button>
      )}
      {all && (
        <div class="chart-grid">
          {rest.map((chart) => (
            <MetricCard key={chart.names[0]} id={id} run={run} chart={chart} onRange={onRange} />
          ))}
        </div>
      )}
      <details class="card config">
        <summary>{say("设置", "Settings")}</summary>
        <dl>
          {Object.entries(run.config).map(([key, value]) => (
            <div key={key}>
              <dt>{key}</dt>
              <dd>{typeof value === "string" ? value : JSON.stringify(value)}</dd>
            </div>
          ))}
        </dl>
      </details>
    </>
  );
}

/** The way to a step without a mouse. */
function StepJump({ id, steps }: { id: string; steps: number[] }) {
  const { say } = usePrefs();
  if (steps.length === 0) return null;
  return (
    <label class="jump">
      {say("到第几步", "Open step")}
      <select value="" onChange={(event) => go(to.step(id, Number(event.currentTarget.value)))}>
        <option value="" disabled>
          {steps[0]} – {steps.at(-1)}
        </option>
        {steps.map((step) => (
          <option key={step} value={step}>
            {step}
          </option>
        ))}
      </select>
    </label>
  );
}

function MetricCard({ id, run, chart, onRange }: { id: string; run: RunData; chart: ChartPlan; onRange: (range: Range) => void }) {
  const { say, pick, dark } = usePrefs();
  const colours = seriesColours(dark);
  const lines = useMemo(() => chart.names.map((name) => ({ name, values: run.series[name] })), [chart, run]);
  const texts = chart.names.map((name) => meaning(run, name));
  const shared = new Set(texts.map((text) => text && pick(text))).size === 1 ? texts[0] : null;
  const open = (step: number) => {
    const nearest = run.ledger_steps.reduce<number | null>(
      (best, one) => (best === null || Math.abs(one - step) < Math.abs(best - step) ? one : best),
      null,
    );
    if (nearest !== null) go(to.step(id, nearest));
  };
  return (
    <figure class="card chart-card" data-metric={chart.names[0]}>
      <figcaption>
        <ul class="metric-names">
          {chart.names.map((name, i) => (
            <li key={name}>
              <span class="key-line" style={{ background: colours[i % colours.length] }} />
              <code>{name}</code>
            </li>
          ))}
        </ul>
        <span class="readout" data-readout />
      </figcaption>
      <Chart
        steps={run.steps}
        lines={lines}
        every={run.every}
        onRange={run.every > 1 && !exported ? onRange : undefined}
        onPick={run.ledger_steps.length ? open : undefined}
        label={say(`${chart.names[0]} 随步数变化`, `${chart.names[0]} over steps`)}
      />
      <div class="meaning">
        {shared ? (
          <p>{pick(shared)}</p>
        ) : (
          texts.map((text, i) => text && (
            <p key={chart.names[i]}>
              <code>{chart.names[i].split("/").slice(1).join("/")}</code> {pick(text)}
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
function meaning(run: RunData, name: string) {
  const family = `${name.split("/")[0]}/<`;
  return run.metrics.find((one) => one.name === name) ?? run.metrics.find((one) => one.name.startsWith(family)) ?? null;
}
