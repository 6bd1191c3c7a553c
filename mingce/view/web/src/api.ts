/** Where the page's data comes from: the server, or in an exported file the JSON it carries. */
import { useEffect, useRef, useState } from "preact/hooks";

const holder = document.getElementById("data");
const carried: Record<string, unknown> | null = holder ? JSON.parse(holder.textContent ?? "{}") : null;
const kept = new Map<string, Promise<unknown>>();

/** True in a file made by `mingce view --export`: there is no server behind the page. */
export const exported = carried !== null;

/** Whether an exported file carries this path; a served page can ask for anything. */
export const has = (path: string): boolean => carried === null || path in carried;

/** The same for anything that begins so. */
export const hasUnder = (start: string): boolean =>
  carried === null || Object.keys(carried).some((path) => path.startsWith(start));

/** The file holds chosen steps and rollouts only, and this is none of them. */
export class NotCarried extends Error {}

async function ask(path: string): Promise<unknown> {
  if (carried) {
    if (path in carried) return carried[path];
    throw new NotCarried(path);
  }
  return told(await fetch(path, { headers: { accept: "application/json" } }));
}

/** What the server makes of a question or a text that is too long for an address; it changes nothing there. */
export async function post<T>(path: string, body: object): Promise<T> {
  const headers = { accept: "application/json", "content-type": "application/json" };
  return (await told(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }))) as T;
}

async function told(answer: Response): Promise<unknown> {
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  let reason = `${answer.status} ${answer.statusText}`;
  try {
    const said = JSON.parse(text) as Record<string, unknown>;
    reason = String(said.error ?? said.detail ?? said.reason ?? reason);
  } catch {
    // not JSON: the status line has to do
  }
  throw new Error(reason);
}

/** What is at a path, asked once unless `again`. */
export function get<T>(path: string, again = false): Promise<T> {
  if (again) kept.delete(path);
  let promise = kept.get(path);
  if (!promise) {
    promise = ask(path);
    kept.set(path, promise);
    promise.catch(() => kept.delete(path));
    if (kept.size > 60) kept.delete(kept.keys().next().value!);
  }
  return promise as Promise<T>;
}

/** The newest data that came for any path: while the path changes the old data stays on the page. */
export function useLatest<T>(path: string | null, version = 0): [T | null, Error | null] {
  const latest = useRef<T | null>(null);
  const { data, error } = useData<T>(path, version);
  if (data !== null) latest.current = data;
  return [path === null ? null : latest.current, error];
}

export interface Loaded<T> {
  data: T | null;
  error: Error | null;
}

/** The data at `path`; a new `version` asks again and keeps the old data on the page until the new is there. */
export function useData<T>(path: string | null, version = 0): Loaded<T> {
  const [state, setState] = useState<Loaded<T> & { path: string | null }>({ path: null, data: null, error: null });
  useEffect(() => {
    if (path === null) return;
    let wanted = true;
    get<T>(path, version > 0).then(
      (data) => wanted && setState({ path, data, error: null }),
      (error: Error) => wanted && setState({ path, data: null, error }),
    );
    return () => {
      wanted = false;
    };
  }, [path, version]);
  return state.path === path ? state : { data: null, error: null };
}

/** The answers a run gave to held-out prompts are a run of their own on the server. */
export const validationOf = (id: string): string => `${id}~validation`;

/** The run itself, for one of its answers to held-out prompts. */
export const runOf = (id: string): string => id.replace(/~validation$/, "");

export const paths = {
  runs: "/api/runs",
  texts: "/api/texts",
  playground: "/api/playground",
  ask: "/api/ask",
  check: "/api/check",
  run: (id: string) => `/api/runs/${encodeURIComponent(id)}`,
  step: (id: string, step: number) => `${paths.run(id)}/steps/${step}`,
  rollout: (id: string, step: number, row: number) => `${paths.step(id, step)}/rollouts/${row}`,
  through: (id: string, step: number, row: number) => `${paths.run(id)}/through?step=${step}&row=${row}`,
  prompts: (id: string) => `${paths.run(id)}/through`,
  audit: (id: string, step: number) => `${paths.run(id)}/audit?step=${step}`,
  table: (id: string, step: number, question: string, offset: number) => `${paths.step(id, step)}/rollouts?${question}${question && "&"}offset=${offset}`,
  whole: (id: string, step: number) => `${paths.step(id, step)}?whole=1`,
  samples: (id: string, step: number, row: number) => `${paths.rollout(id, step, row)}/samples`,
  worst: (id: string, step: number | null, by: string, each: boolean) =>
    `${step === null ? paths.run(id) : paths.step(id, step)}/worst?${new URLSearchParams({ by, each: each ? "1" : "" })}`,
  search: (id: string, text: string, before: number | null) =>
    `${paths.run(id)}/search?${new URLSearchParams({ text, ...(before === null ? {} : { before: String(before) }) })}`,
  range: (id: string, [from, to]: [number, number]) => `${paths.run(id)}?from=${from}&to=${to}`,
  moreRuns: (offset: number) => `/api/runs?offset=${offset}`,
  events: (id: string) => `${paths.run(id)}/events`,
};

/** Counts up whenever the run has a new step or another status; a finished run or an export has no news. */
export function useNews(id: string, live: boolean): number {
  const [news, setNews] = useState(0);
  useEffect(() => {
    if (!live || exported) return;
    const source = new EventSource(paths.events(id));
    source.onmessage = () => setNews((n) => n + 1);
    return () => source.close();
  }, [id, live]);
  return news;
}
