/** All runs found; two or more can be laid over each other. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { exported, get, paths, useData } from "../api";
import { Chart } from "../chart";
import { seriesColours } from "../colours";
import { Await } from "../loading";
import { number } from "../numbers";
import { usePrefs } from "../prefs";
import { replace, to } from "../route";
import { Sparkline } from "../sparkline";
import { StatusMark } from "../status";
import type { Num, Run, RunSummary } from "../types";

const PAGE = 200; // runs in one answer
const COMPARED = ["critic/score/mean", "critic/kl", "actor/entropy", "critic/vf_explained_var"];

export function Runs({ query }: { query: URLSearchParams }) {
  const { say } = usePrefs();
  const runs = useData<RunSummary[]>(paths.runs);
  const [more, setMore] = useState<RunSummary[]>([]);
  const [done, setDone] = useState(false);
  const load = (offset: number) =>
    void get<RunSummary[]>(paths.moreRuns(offset)).then((found) => {
      setMore([...more, ...found]);
      setDone(found.length === 0);
    });
  const picked = (query.get("compare") ?? "").split(",").filter(Boolean);
  const pick = (id: string) => {
    const next = picked.includes(id) ? picked.filter((one) => one !== id) : [...picked, id];
    replace(to.runs({ compare: next.length ? next.join(",") : null }));
  };
  return (
    <main>
      <h1>{say("运行", "Runs")}</h1>
      <Await of={runs}>
        {(all) =>
          all.length === 0 ? (
            <p class="card notice">{say("还没有运行。用 mingce train 开始一个。", "No runs yet. Start one with mingce train.")}</p>
          ) : (
            <>
              <ul class="run-list">
                {[...all, ...more].map((run) => (
                  <RunCard key={run.id} run={run} picked={picked.includes(run.id)} onPick={() => pick(run.id)} />
                ))}
              </ul>
              {!done && !exported && (all.length + more.length) % PAGE === 0 && (
                <button type="button" class="more" onClick={() => load(all.length + more.length)}>
                  {say("更早的运行", "Earlier runs")}
                </button>
              )}
              {picked.length >= 2 ? (
                <Compare ids={picked} />
              ) : (
                all.length > 1 && <p class="muted hint">{say("勾选两个以上即可比较。", "Tick two or more to compare them.")}</p>
              )}
            </>
          )
        }
      </Await>
    </main>
  );
}

function RunCard({ run, picked, onPick }: { run: RunSummary; picked: boolean; onPick: () => void }) {
  const { say, lang } = usePrefs();
  const when = run.updated === null ? null : new Date(typeof run.updated === "number" ? run.updated * 1000 : run.updated);
  return (
    <li class="card run-card">
      <label class="tick-box">
        <input type="checkbox" checked={picked} onChange={onPick} aria-label={say(`比较 ${run.name}`, `Compare ${run.name}`)} />
      </label>
      <div class="run-name">
        <a href={to.run(run.id)}>{run.name}</a>
        <span class="muted path">{run.message ?? run.path}</span>
      </div>
      <StatusMark status={run.status} />
      <span class="run-fact">
        <small>{say("步", "steps")}</small>
        {run.steps}
        {run.total_steps ? <span class="muted"> / {run.total_steps}</span> : null}
      </span>
      <span class="run-fact">
        <small>{say("得分", "score")}</small>
        {number(run.last_score, 3)}
      </span>
      <span class="run-fact">
        <small>{say("估计器", "estimator")}</small>
        {run.estimator ?? "–"}
      </span>
      <Sparkline values={run.spark} />
      <span class="run-fact when muted">{when ? when.toLocaleString(lang === "zh" ? "zh-CN" : "en-GB", { dateStyle: "medium", timeStyle: "short" }) : ""}</span>
    </li>
  );
}

/** The same metric of several runs over each other; steps that a run does not have stay empty. */
function Compare({ ids }: { ids: string[] }) {
  const { say, dark } = usePrefs();
  const [runs, setRuns] = useState<Run[]>([]);
  const key = ids.join(",");
  useEffect(() => {
    let wanted = true;
    void Promise.all(ids.map((id) => get<Run>(paths.run(id)))).then((found) => wanted && setRuns(found), () => undefined);
    return () => {
      wanted = false;
    };
  }, [key]);
  const charts = useMemo(() => {
    const steps = [...new Set(runs.flatMap((run) => run.steps))].sort((a, b) => a - b);
    return COMPARED.map((name) => ({
      name,
      steps,
      lines: runs.map((run) => {
        const at = new Map(run.steps.map((step, i) => [step, run.series[name]?.[i] ?? null]));
        return { name: run.name, values: steps.map((step): Num => at.get(step) ?? null) };
      }),
    }));
  }, [runs]);
  const colours = seriesColours(dark);
  return (
    <section>
      <h2>{say("比较", "Compare")}</h2>
      <p class="series-key">
        {runs.map((run, i) => (
          <span key={run.id}>
            <span class="key-line" style={{ background: colours[i % colours.length] }} /> {run.name}
          </span>
        ))}
      </p>
      <div class="chart-grid">
        {charts.map((chart) => (
          <figure key={chart.name} class="card chart-card">
            <figcaption>
              <code>{chart.name}</code> <span class="readout" data-readout />
            </figcaption>
            <Chart steps={chart.steps} lines={chart.lines} label={chart.name} />
          </figure>
        ))}
      </div>
    </section>
  );
}
