/** Which rollouts of a step are shown, in which order: kept in the address, answered by the server or by the file. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { exported, get, paths } from "./api";
import type { Num, RolloutLine, Step } from "./types";

export type Key = "row" | "group" | "score" | "kl" | "length" | "finish_reason" | "data_source" | "max_abs_advantage" | `part:${string}`;
export const PAGE = 100;
const KEPT = 30;

export interface Asked {
  sort: Key;
  down: boolean;
  search: string;
  finish: string;
  source: string;
  extreme: string;
  /** A row whose group alone is shown. */
  like: string;
}

export function read(query: URLSearchParams): Asked {
  const word = (name: string, other = "") => query.get(name) ?? other;
  return {
    sort: word("sort", "row") as Key,
    down: word("down") === "1",
    search: word("search"),
    finish: word("finish"),
    source: word("data_source"),
    extreme: word("extreme", "all"),
    like: word("like"),
  };
}

/** Only what differs from the usual. */
export function written(asked: Asked): Record<string, string | null> {
  return {
    sort: asked.sort === "row" ? null : asked.sort,
    down: asked.down ? "1" : null,
    search: asked.search || null,
    finish: asked.finish || null,
    data_source: asked.source || null,
    extreme: asked.extreme === "all" ? null : asked.extreme,
    like: asked.like || null,
  };
}

export interface Rows {
  count: number;
  /** Undefined while it is on its way. */
  line: (place: number) => RolloutLine | undefined;
  /** The places that are in sight. */
  see: (first: number, last: number) => void;
  error: Error | null;
  /** The lines are still those of the question before. */
  busy: boolean;
}

export const useRows: (id: string, data: Step, asked: Asked) => Rows = exported ? useCarried : useServed;

interface Pages {
  question: string;
  count: number;
  pages: Map<number, RolloutLine[]>;
  error: Error | null;
}

/** Pages of lines, asked for when they come into sight; the old ones stay until the new are there. */
function useServed(id: string, data: Step, asked: Asked): Rows {
  const seen = data.histograms ? "" : "first=1"; // asked again once the whole step is known, which tells the best of each group
  const wanted = Object.entries(written(asked)).flatMap(([name, value]) => (value === null ? [] : [[name, value]]));
  const question = [new URLSearchParams(wanted).toString(), seen].filter(Boolean).join("&");
  const [state, setState] = useState<Pages>({ question: seen, count: data.shown ?? 0, pages: new Map([[0, data.rollouts]]), error: null });
  const [[first, last], see] = useState<[number, number]>([0, 0]);
  useEffect(() => {
    let wanted = true;
    const missing: number[] = [];
    for (let page = first; page <= last; page++) if (state.question !== question || !state.pages.has(page)) missing.push(page);
    const load = (page: number) =>
      get<Step>(paths.table(id, data.step, question, page * PAGE)).then(
        (found) => wanted && setState((old) => ({ question, count: found.shown ?? 0, error: null, pages: added(old, question, page, found.rollouts) })),
        (error: Error) => wanted && setState((old) => ({ ...old, error })),
      );
    const timer = setTimeout(() => missing.forEach((page) => void load(page)), 60); // not for every page that flies past
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [id, data, question, first, last]);
  return {
    count: state.count,
    error: state.error,
    busy: state.question !== question && state.error === null,
    line: (place) => state.pages.get(Math.floor(place / PAGE))?.[place % PAGE],
    see: (from, to) => {
      const next: [number, number] = [Math.floor(from / PAGE), Math.floor(Math.max(from, to - 1) / PAGE)];
      if (next[0] !== first || next[1] !== last) see(next);
    },
  };
}

function added(old: Pages, question: string, page: number, lines: RolloutLine[]): Map<number, RolloutLine[]> {
  const pages = new Map(old.question === question ? old.pages : []);
  pages.set(page, lines);
  while (pages.size > KEPT) pages.delete(pages.keys().next().value!);
  return pages;
}

/** An exported file carries a few lines, all of them here. */
function useCarried(_: string, data: Step, asked: Asked): Rows {
  const shown = useMemo(() => {
    const wanted = asked.search.toLowerCase();
    const group = data.rollouts.find((line) => String(line.row) === asked.like)?.group;
    const kept = data.rollouts.filter(
      (line) =>
        (!wanted || line.uid === asked.search || `${line.prompt}\n${line.response}`.toLowerCase().includes(wanted)) &&
        (!asked.finish || line.finish_reason === asked.finish) &&
        (!asked.source || line.data_source === asked.source) &&
        (!asked.like || line.group === group) &&
        (asked.extreme === "all" || (asked.extreme === "best" ? line.best : line.worst)),
    );
    const sign = asked.down ? -1 : 1;
    return kept.sort((a, b) => sign * compare(value(a, asked.sort), value(b, asked.sort)) || a.row - b.row);
  }, [data, asked.sort, asked.down, asked.search, asked.finish, asked.source, asked.like, asked.extreme]);
  return { count: shown.length, line: (place) => shown[place], see: () => undefined, error: null, busy: false };
}

function value(line: RolloutLine, key: Key): Num | string {
  if (key.startsWith("part:")) return line.parts?.[key.slice(5)] ?? null;
  return line[key as Exclude<Key, `part:${string}`>] ?? null;
}

function compare(a: Num | string, b: Num | string): number {
  if (a === b) return 0;
  if (a === null) return -1;
  if (b === null) return 1;
  return typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : a - b;
}
