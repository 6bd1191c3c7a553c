/** Addresses within the page: #/run/{id}/step/{n}/rollout/{row}?token=4&column=advantages. */
import { useEffect, useState } from "preact/hooks";

export interface Route {
  parts: string[];
  query: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

type Query = Record<string, string | number | null | undefined>;

function address(path: string, query: Query = {}): string {
  const given = Object.entries(query).flatMap(([key, value]) =>
    value === null || value === undefined ? [] : [[key, String(value)]],
  );
  return given.length ? `#${path}?${new URLSearchParams(given)}` : `#${path}`;
}

const id = encodeURIComponent;

export const to = {
  runs: (query?: Query) => address("/", query),
  playground: () => address("/playground"),
  check: () => address("/check"),
  run: (run: string, query?: Query) => address(`/run/${id(run)}`, query),
  step: (run: string, step: number, query?: Query) => address(`/run/${id(run)}/step/${step}`, query),
  rollout: (run: string, step: number, row: number, query?: Query) =>
    address(`/run/${id(run)}/step/${step}/rollout/${row}`, query),
  samples: (run: string, step: number, row: number, query?: Query) => address(`/run/${id(run)}/step/${step}/samples/${row}`, query),
  worst: (run: string, step: number | null, query?: Query) =>
    address(step === null ? `/run/${id(run)}/worst` : `/run/${id(run)}/step/${step}/worst`, query),
  search: (run: string, query?: Query) => address(`/run/${id(run)}/search`, query),
  through: (run: string, query?: Query) => address(`/run/${id(run)}/through`, query),
  audit: (run: string, query?: Query) => address(`/run/${id(run)}/audit`, query),
};

export const go = (hash: string): void => {
  location.hash = hash;
};

/** Changes the address without a new entry in the history: walking over tokens should not fill it. */
export function replace(hash: string): void {
  history.replaceState(null, "", hash);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
