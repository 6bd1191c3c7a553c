/** The rollouts of a step: sort by any column, search the text, keep one group or one way of ending. */
import { useEffect, useRef, useState } from "preact/hooks";
import { has, paths } from "./api";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import { read, useRows, written, type Asked, type Key } from "./rollout_query";
import { go, replace, to } from "./route";
import type { RolloutLine, Step } from "./types";
import { Windowed } from "./windowed";

const TEXTS = new Set<Key>(["finish_reason", "group", "data_source"]);
const RISING = new Set<Key>(["row", "group", "data_source"]); // sorted from the first on

/** What this trainer wrote down: a column of dashes tells nothing. */
function recorded({ rollouts, endings, data_sources }: Step) {
  return {
    kl: rollouts.some((line) => line.kl !== null),
    finish: endings.length > 0 || rollouts.some((line) => line.finish_reason !== null),
    sources: data_sources.length > 1,
    advantage: rollouts.some((line) => line.max_abs_advantage !== null),
  };
}

export function RolloutTable({ id, data, query }: { id: string; data: Step; query: URLSearchParams }) {
  const { say } = usePrefs();
  const asked = read(query);
  const rows = useRows(id, data, asked);
  const set = (change: Partial<Asked>) => replace(to.step(id, data.step, written({ ...asked, ...change })));
  const there = recorded(data);
  const heads: [Key | "response", string][] = [
    ["row", "#"],
    ["score", say("得分", "score")],
    ["group", say("提示", "prompt")],
    ["response", say("回答", "response")],
    ...(there.sources ? [["data_source", say("来源", "source")] as [Key, string]] : []),
    ...data.parts.map((part): [Key, string] => [`part:${part}`, part]),
    ...(there.kl ? [["kl", "KL"] as [Key, string]] : []),
    ["length", say("长度", "length")],
    ...(there.finish ? [["finish_reason", say("结束", "finish")] as [Key, string]] : []),
    ...(there.advantage ? [["max_abs_advantage", "max |A|"] as [Key, string]] : []),
  ];
  const arrow = (key: Key) => (asked.sort === key ? (asked.down ? " ↓" : " ↑") : "");
  return (
    <section class="card" aria-busy={rows.busy}>
      <Filters id={id} data={data} asked={asked} count={rows.count} onChange={set} />
      {rows.error && <p class="notice" role="alert">{rows.error.message}</p>}
      <Windowed
        count={rows.count}
        height={560}
        label={say("回答", "Rollouts")}
        version={query.toString()}
        onSee={rows.see}
        head={
          <tr>
            {heads.map(([key, name]) =>
              key === "response" ? (
                <th key={key}>{name}</th>
              ) : (
                <th key={key} class={TEXTS.has(key) ? undefined : "number"} aria-sort={asked.sort === key ? (asked.down ? "descending" : "ascending") : "none"}>
                  <button type="button" onClick={() => set({ sort: key, down: asked.sort === key ? !asked.down : !RISING.has(key) })}>
                    {name}
                    {arrow(key)}
                  </button>
                </th>
              ),
            )}
          </tr>
        }
        row={(i) => <Row key={i} {...{ id, data, place: i }} line={rows.line(i)} onGroup={(row) => set({ like: String(row) })} />}
      />
    </section>
  );
}

interface FiltersProps {
  id: string;
  data: Step;
  asked: Asked;
  count: number;
  onChange: (change: Partial<Asked>) => void;
}

function Filters({ id, data, asked, count, onChange }: FiltersProps) {
  const { say } = usePrefs();
  const [typed, setTyped] = useState(asked.search);
  const change = useRef(onChange); // another filter may have been set while the timer ran
  change.current = onChange;
  useEffect(() => {
    const timer = setTimeout(() => typed.trim() !== asked.search && change.current({ search: typed.trim() }), 250);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <div class="filters">
      <input type="search" value={typed} placeholder={say("搜索提示、回答或编号", "Search prompt, response or uid")} maxLength={200}
        aria-label={say("搜索", "Search")} onInput={(event) => setTyped(event.currentTarget.value)} />
      <select aria-label={say("组内", "In the group")} value={asked.extreme} onChange={(event) => onChange({ extreme: event.currentTarget.value })}>
        <option value="all">{say("全部", "all")}</option>
        <option value="best">{say("每组最好", "best of each group")}</option>
        <option value="worst">{say("每组最差", "worst of each group")}</option>
      </select>
      {data.endings.length > 1 && (
        <select aria-label={say("结束方式", "Finish reason")} value={asked.finish} onChange={(event) => onChange({ finish: event.currentTarget.value })}>
          <option value="">{say("任何结束方式", "any finish")}</option>
          {data.endings.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      )}
      {data.data_sources.length > 1 && (
        <select aria-label={say("数据来源", "Data source")} value={asked.source} onChange={(event) => onChange({ source: event.currentTarget.value })}>
          <option value="">{say("所有来源", "any source")}</option>
          {data.data_sources.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      )}
      {asked.like && (
        <>
          <button type="button" class="tag" onClick={() => onChange({ like: "" })}>
            {say("同组", "one group")} ✕
          </button>
          {has(paths.samples(id, data.step, Number(asked.like))) && (
            <a class="tag" href={to.samples(id, data.step, Number(asked.like))}>{say("并排看", "Side by side")}</a>
          )}
        </>
      )}
      <span class="muted count" aria-live="polite">
        {count.toLocaleString("en-GB")} / {(data.total ?? data.rollouts.length).toLocaleString("en-GB")}
      </span>
    </div>
  );
}

interface RowProps {
  id: string;
  data: Step;
  place: number;
  line: RolloutLine | undefined;
  onGroup: (row: number) => void;
}

function Row({ id, data, line, onGroup }: RowProps) {
  const { say } = usePrefs();
  if (!line) return <tr class="waiting"><td colSpan={9 + data.parts.length}>…</td></tr>;
  const open = to.rollout(id, data.step, line.row);
  const there = recorded(data);
  return (
    <tr class="link" onClick={() => go(open)}>
      <td class="number">
        <a href={open} onClick={(event) => event.stopPropagation()}>
          {line.row}
        </a>
      </td>
      <td class="number">
        {number(line.score)}
        <Mark best={line.best} worst={line.worst} />
      </td>
      <td class="text">
        <button type="button" class="plain" title={say("只看这一组，可并排看", "This group only, then side by side")}
          onClick={(event) => { event.stopPropagation(); onGroup(line.row); }}>
          {line.question}
        </button>
      </td>
      <td class="text">{line.response}</td>
      {there.sources && <td class="source" title={line.data_source ?? undefined}>{line.data_source ?? "–"}</td>}
      {data.parts.map((part) => (
        <td key={part} class="number">{number(line.parts?.[part])}</td>
      ))}
      {there.kl && <td class="number">{number(line.kl)}</td>}
      <td class="number">{line.length}</td>
      {there.finish && <td>{line.finish_reason ?? "–"}</td>}
      {there.advantage && <td class="number">{number(line.max_abs_advantage)}</td>}
    </tr>
  );
}

function Mark({ best, worst }: { best: boolean; worst: boolean }) {
  const { say } = usePrefs();
  if (best === worst) return <span class="rank" />;
  return (
    <span class={best ? "rank best" : "rank worst"} title={best ? say("本组最好", "best of its group") : say("本组最差", "worst of its group")}>
      {best ? "▲" : "▼"}
    </span>
  );
}
