/** The rollouts of a step: sort by any column, search the text, keep one group or one way of ending. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { exported, paths, useData } from "./api";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import { go, to } from "./route";
import type { Num, RolloutLine, Step } from "./types";
import { Windowed } from "./windowed";

type Key = "row" | "group" | "score" | "kl" | "length" | "finish_reason" | "max_abs_advantage" | `part:${string}`;
type Extreme = "all" | "best" | "worst";

interface Filter {
  search: string;
  finish: string;
  group: string;
  extreme: Extreme;
}

function value(line: RolloutLine, key: Key): Num | string {
  if (key.startsWith("part:")) return line.parts?.[key.slice(5)] ?? null;
  return line[key as Exclude<Key, `part:${string}`>];
}

function compare(a: Num | string, b: Num | string): number {
  if (a === b) return 0;
  if (a === null) return -1;
  if (b === null) return 1;
  return typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : a - b;
}

export function RolloutTable({ id, data }: { id: string; data: Step }) {
  const { say } = usePrefs();
  const [sort, setSort] = useState<{ key: Key; down: boolean }>({ key: "row", down: false });
  const [filter, setFilter] = useState<Filter>({ search: "", finish: "", group: "", extreme: "all" });
  const found = useWholeSearch(id, data, filter.search.trim());
  const best = useMemo(() => new Set(data.groups.map((group) => group.best_row)), [data]);
  const worst = useMemo(() => new Set(data.groups.map((group) => group.worst_row)), [data]);
  const parts = useMemo(() => [...new Set(data.rollouts.flatMap((line) => Object.keys(line.parts ?? {})))], [data]);
  const endings = useMemo(() => [...new Set(data.rollouts.map((line) => line.finish_reason ?? ""))].filter(Boolean), [data]);

  const shown = useMemo(() => {
    const wanted = filter.search.trim().toLowerCase();
    const kept = (found ?? data.rollouts).filter(
      (line) =>
        (!wanted || found !== null || `${line.prompt}\n${line.response}\n${line.uid}`.toLowerCase().includes(wanted)) &&
        (!filter.finish || line.finish_reason === filter.finish) &&
        (!filter.group || line.group === filter.group) &&
        (filter.extreme === "all" || (filter.extreme === "best" ? best : worst).has(line.row)),
    );
    const sign = sort.down ? -1 : 1;
    return kept.sort((a, b) => sign * compare(value(a, sort.key), value(b, sort.key)) || a.row - b.row);
  }, [data, found, sort, filter, best, worst]);

  const heads: [Key, string][] = [
    ["row", "#"],
    ["score", say("得分", "score")],
    ...parts.map((part): [Key, string] => [`part:${part}`, part]),
    ["kl", "KL"],
    ["length", say("长度", "length")],
    ["finish_reason", say("结束", "finish")],
    ["max_abs_advantage", "max |A|"],
  ];
  const arrow = (key: Key) => (sort.key === key ? (sort.down ? " ↓" : " ↑") : "");
  const set = (change: Partial<Filter>) => setFilter({ ...filter, ...change });

  return (
    <section class="card">
      <div class="filters">
        <input type="search" value={filter.search} placeholder={say("搜索提示、回答或编号", "Search prompt, response or uid")}
          aria-label={say("搜索", "Search")} onInput={(event) => set({ search: event.currentTarget.value })} />
        <select aria-label={say("组内", "In the group")} value={filter.extreme}
          onChange={(event) => set({ extreme: event.currentTarget.value as Extreme })}>
          <option value="all">{say("全部", "all")}</option>
          <option value="best">{say("每组最好", "best of each group")}</option>
          <option value="worst">{say("每组最差", "worst of each group")}</option>
        </select>
        {endings.length > 1 && (
          <select aria-label={say("结束方式", "Finish reason")} value={filter.finish}
            onChange={(event) => set({ finish: event.currentTarget.value })}>
            <option value="">{say("任何结束方式", "any finish")}</option>
            {endings.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
        {filter.group && (
          <button type="button" class="tag" onClick={() => set({ group: "" })}>
            {say("同组", "one group")} ✕
          </button>
        )}
        <span class="muted count" aria-live="polite">
          {shown.length} / {data.total ?? data.rollouts.length}
        </span>
      </div>
      <Windowed
        count={shown.length}
        height={560}
        label={say("回答", "Rollouts")}
        head={
          <tr>
            {heads.map(([key, name]) => (
              <th key={key} class={key === "finish_reason" ? undefined : "number"} aria-sort={sort.key === key ? (sort.down ? "descending" : "ascending") : "none"}>
                <button type="button" onClick={() => setSort({ key, down: sort.key === key ? !sort.down : key !== "row" })}>
                  {name}
                  {arrow(key)}
                </button>
              </th>
            ))}
            <th>
              <button type="button" onClick={() => setSort({ key: "group", down: sort.key === "group" && !sort.down })}>
                {say("提示", "prompt")}
                {arrow("group")}
              </button>
            </th>
            <th>{say("回答", "response")}</th>
          </tr>
        }
        row={(i) => {
          const line = shown[i];
          const open = to.rollout(id, data.step, line.row);
          return (
            <tr key={line.row} class="link" onClick={() => go(open)}>
              <td class="number">
                <a href={open} onClick={(event) => event.stopPropagation()}>
                  {line.row}
                </a>
              </td>
              <td class="number">
                {number(line.score)}
                <Mark best={best.has(line.row)} worst={worst.has(line.row)} />
              </td>
              {parts.map((part) => (
                <td key={part} class="number">{number(line.parts?.[part])}</td>
              ))}
              <td class="number">{number(line.kl)}</td>
              <td class="number">{line.length}</td>
              <td>{line.finish_reason ?? "–"}</td>
              <td class="number">{number(line.max_abs_advantage)}</td>
              <td class="text">
                <button type="button" class="plain" title={say("只看这一组", "This group only")}
                  onClick={(event) => { event.stopPropagation(); set({ group: line.group }); }}>
                  {line.prompt}
                </button>
              </td>
              <td class="text">{line.response}</td>
            </tr>
          );
        }}
      />
    </section>
  );
}

/** The table's texts are cut short; once someone searches, the server looks through the whole ones. */
function useWholeSearch(id: string, data: Step, search: string): RolloutLine[] | null {
  const [settled, setSettled] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSettled(search), 250);
    return () => clearTimeout(timer);
  }, [search]);
  const whole = useData<Step>(settled && settled === search && !exported ? paths.search(id, data.step, settled) : null);
  return settled === search && search ? (whole.data?.rollouts ?? null) : null;
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
