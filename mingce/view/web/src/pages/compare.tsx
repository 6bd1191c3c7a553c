/** The same metrics of several runs over each other, and the settings in which the runs differ. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, paths } from "../api";
import { seriesColours } from "../colours";
import type { CurveLook } from "../curves";
import { CurveBar, MetricCard } from "../metric_card";
import { usePrefs } from "../prefs";
import { to } from "../route";
import { plan } from "../run_charts";
import type { Num, Run } from "../types";

export const MOST = 10; // as many as there are colours

export function Compare({ ids, look, onLook }: { ids: string[]; look: CurveLook; onLook: (look: CurveLook) => void }) {
  const { say, dark } = usePrefs();
  const [runs, setRuns] = useState<Run[]>([]);
  const [missing, setMissing] = useState<string[]>([]);
  const [all, setAll] = useState(false);
  const [news, setNews] = useState(0);
  const training = runs.some((run) => run.status === "training");
  useEffect(() => {
    const timer = training ? setInterval(() => setNews((n) => n + 1), 3000) : undefined;
    return () => clearInterval(timer);
  }, [training]);
  useEffect(() => {
    let wanted = true;
    void Promise.allSettled(ids.map((id) => get<Run>(paths.run(id), news > 0))).then((found) => {
      if (!wanted) return;
      const there = found.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
      setRuns((old) => (stateOf(old) === stateOf(there) ? old : there));
      setMissing(found.flatMap((one) => (one.status === "rejected" ? [(one.reason as Error).message] : [])));
    });
    return () => {
      wanted = false;
    };
  }, [ids.join(), news]);
  const steps = useMemo(() => [...new Set(runs.flatMap((run) => run.steps))].sort((a, b) => a - b), [runs]);
  const charts = useMemo(() => {
    const { first, rest } = plan(...runs);
    const names = (charts: { names: string[] }[]) => charts.flatMap((chart) => chart.names);
    return { first: names(first).filter((name) => !name.startsWith("timing_s/") || name === "timing_s/step"), rest: names(rest) };
  }, [runs]);
  const colours = seriesColours(dark);
  const card = (name: string) => <Overlay key={name} {...{ name, runs, steps, look, onLook }} />;
  return (
    <section class="compare-runs">
      <h2>{say("比较", "Compare")}</h2>
      {missing.map((why) => <p key={why} class="card notice" role="alert">{why}</p>)}
      <p class="series-key">
        {runs.map((run, i) => (
          <span key={run.id}>
            <span class="key-line" style={{ background: colours[i % colours.length] }} /> <a href={to.run(run.id)}>{run.name}</a>
          </span>
        ))}
      </p>
      <Differences runs={runs} />
      <CurveBar look={look} onChange={onLook} />
      <div class="chart-grid">{charts.first.map(card)}</div>
      {charts.rest.length > 0 && (
        <button type="button" class="more" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? say("收起", "Fewer") : say(`其余 ${charts.rest.length} 个指标`, `${charts.rest.length} more metrics`)}
        </button>
      )}
      {all && <div class="chart-grid">{charts.rest.map(card)}</div>}
    </section>
  );
}

/** What changes when a run goes on. */
const stateOf = (runs: Run[]): string => runs.map((run) => `${run.id} ${run.status} ${run.steps.length} ${run.steps.at(-1)}`).join();

interface OverlayProps {
  name: string;
  runs: Run[];
  steps: number[];
  look: CurveLook;
  onLook: (look: CurveLook) => void;
}

/** Steps that a run does not have stay empty. */
function Overlay({ name, runs, steps, look, onLook }: OverlayProps) {
  const lines = useMemo(
    () =>
      runs.map((run) => {
        const at = new Map(run.steps.map((step, i) => [step, run.series[name]?.[i] ?? null]));
        return { name: run.name, values: steps.map((step): Num => at.get(step) ?? null) };
      }),
    [name, runs, steps],
  );
  const metrics = useMemo(() => runs.flatMap((run) => run.metrics), [runs]);
  return <MetricCard names={[name]} {...{ metrics, steps, lines, look }} onFull={() => onLook({ ...look, full: true })} />;
}

const SAME = ["name", "root"]; // differ by their nature

/** The settings that are not the same in all of the runs. */
function Differences({ runs }: { runs: Run[] }) {
  const { say } = usePrefs();
  if (runs.length < 2) return null;
  const written = (run: Run, key: string) => (key in run.config ? JSON.stringify(run.config[key]) : undefined);
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.config)))].filter(
    (key) => !SAME.includes(key) && new Set(runs.map((run) => written(run, key))).size > 1,
  );
  if (keys.length === 0) return <p class="muted">{say("这些运行的设置相同。", "These runs have the same settings.")}</p>;
  return (
    <div class="table-box differences">
      <table aria-label={say("不同的设置", "Settings that differ")}>
        <thead>
          <tr>
            <th class="stuck">{say("不同的设置", "Settings that differ")}</th>
            {runs.map((run) => (
              <th key={run.id}>{run.name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {keys.map((key) => (
            <tr key={key} data-setting={key}>
              <td class="stuck"><code>{key}</code></td>
              {runs.map((run) => (
                <td key={run.id}>{written(run, key)?.replace(/^"|"$/g, "") ?? "–"}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
