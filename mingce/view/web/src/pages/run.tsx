/** One run: held-out answers through training, charts over its steps with what they mean, and its newest answers. */
import { useMemo, useState } from "preact/hooks";
import { exported, paths, runOf, useData, useNews } from "../api";
import { readLook, writtenLook, type CurveLook } from "../curves";
import { HeldOut } from "../held_out";
import { toSearch, useKeys } from "../keys";
import { Await } from "../loading";
import { CurveBar, MetricCard } from "../metric_card";
import { Newest } from "../newest";
import { Notices } from "../notices";
import { usePrefs } from "../prefs";
import { go, replace, to } from "../route";
import { plan } from "../run_charts";
import { SearchBox } from "../search_box";
import { StatusMark } from "../status";
import type { Run as RunData } from "../types";

export function Run({ id, query }: { id: string; query: URLSearchParams }) {
  const [live, setLive] = useState(false);
  const news = useNews(id, live);
  const found = /^(\d{1,9})-(\d{1,9})$/.exec(query.get("steps") ?? "");
  const range: Range | null = found && Number(found[1]) < Number(found[2]) ? [Number(found[1]), Number(found[2])] : null;
  const whole = useData<RunData>(paths.run(id), news);
  const part = useData<RunData>(range && paths.range(id, range), news);
  const run = range && part.data ? part : whole;
  const training = run.data?.status === "training";
  if (run.data && training !== live) setLive(training);
  useKeys({ "/": toSearch });
  return (
    <main class="wide">
      <Await of={run}>{(data) => <Page {...{ id, query, news, range }} run={data} />}</Await>
    </main>
  );
}

type Range = [number, number];

interface PageProps {
  id: string;
  query: URLSearchParams;
  run: RunData;
  news: number;
  range: Range | null;
}

function Page({ id, query, run, news, range }: PageProps) {
  const { say } = usePrefs();
  const look = readLook(query);
  const place = Number(query.get("prompt") ?? 1) - 1 || 0;
  const set = (change: Partial<CurveLook & { place: number; range: Range | null }>) => {
    const next = { ...look, place, range, ...change };
    replace(to.run(id, { prompt: next.place > 0 ? next.place + 1 : null, steps: next.range && next.range.join("-"), ...writtenLook(next) }));
  };
  return (
    <>
      <header class="page-head">
        <h1>{run.name}</h1>
        <StatusMark status={run.status} />
        {typeof run.config.trainer === "string" && <span class="muted trainer">{run.config.trainer}</span>}
        {!exported && run.ledger_steps.length > 0 && (
          <>
            <a href={to.worst(id, null)}>{say("最突出的 token", "Worst tokens")}</a>
            <a href={to.runs({ compare: runOf(id) })}>{say("与别的运行比较", "Compare with other runs")}</a>
            <SearchBox id={id} />
          </>
        )}
        <StepJump id={id} steps={run.ledger_steps} />
      </header>
      <Notices run={run} />
      <HeldOut {...{ id, run, news, place }} onPlace={(next) => set({ place: next })} />
      <div class="run-body">
        <Charts {...{ id, run, range, look }} onRange={(next) => set({ range: next })} onLook={set} />
        <Newest {...{ id, run, news }} />
      </div>
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

interface ChartsProps {
  id: string;
  run: RunData;
  range: Range | null;
  onRange: (range: Range | null) => void;
  look: CurveLook;
  onLook: (look: CurveLook) => void;
}

function Charts({ id, run, range, onRange, look, onLook }: ChartsProps) {
  const { say } = usePrefs();
  const { first, rest } = useMemo(() => plan(run), [run]);
  const [all, setAll] = useState(false);
  const card = (names: string[]) => <RunCard key={names[0]} {...{ id, run, names, onRange, look, onLook }} />;
  return (
    <div class="run-charts">
      <CurveBar look={look} onChange={onLook} />
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
      <div class="chart-grid">{first.map(({ names }) => card(names))}</div>
      {rest.length > 0 && (
        <button type="button" class="more" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? say("收起", "Fewer") : say(`其余 ${rest.length} 个指标`, `${rest.length} more metrics`)}
        </button>
      )}
      {all && <div class="chart-grid">{rest.map(({ names }) => card(names))}</div>}
    </div>
  );
}

type RunCardProps = Omit<ChartsProps, "range"> & { names: string[] };

function RunCard({ id, run, names, onRange, look, onLook }: RunCardProps) {
  const lines = useMemo(() => names.map((name) => ({ name, values: run.series[name] })), [names.join(), run]);
  const open = (step: number) => {
    const found = nearest(run.ledger_steps, step);
    if (found !== null) go(to.step(id, found));
  };
  return (
    <MetricCard {...{ names, lines, look }} metrics={run.metrics} steps={run.steps} every={run.every}
      onRange={run.every > 1 && !exported ? onRange : undefined}
      onPick={run.ledger_steps.length ? open : undefined}
      onFull={() => onLook({ ...look, full: true })} />
  );
}

function nearest(steps: readonly number[], step: number): number | null {
  return steps.reduce<number | null>((best, one) => (best === null || Math.abs(one - step) < Math.abs(best - step) ? one : best), null);
}

/** The way to a step without a mouse: the one that is typed, or the nearest there is. */
function StepJump({ id, steps }: { id: string; steps: number[] }) {
  const { say } = usePrefs();
  if (steps.length === 0) return null;
  return (
    <form
      class="jump"
      onSubmit={(event) => {
        event.preventDefault();
        const typed = new FormData(event.currentTarget).get("step");
        const found = nearest(steps, Number(typed));
        if (typed !== "" && found !== null) go(to.step(id, found));
      }}
    >
      <label>
        {say("到第几步", "Open step")}{" "}
        <input name="step" type="number" min={steps[0]} max={steps.at(-1)} placeholder={`${steps[0]}–${steps.at(-1)}`} />
      </label>
      <button type="submit" class="tag">{say("去", "Go")}</button>
    </form>
  );
}
