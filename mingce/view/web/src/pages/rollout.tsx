/** The microscope: one rollout, every token in its colour, its curves, its account; the credit map; what if. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { has, paths, useData } from "../api";
import { AskPanel } from "../ask_panel";
import { useDialogue } from "../asking";
import type { Range } from "../chips";
import { effectiveLambda } from "../credit";
import { CreditMap } from "../credit_map";
import { withDerived } from "../derived";
import type { Book } from "../facts";
import { Await } from "../loading";
import { lacks, Microscope } from "../microscope";
import { firstLevel, remember, usePrefs } from "../prefs";
import { replace, to } from "../route";
import { RolloutHead } from "../rollout_head";
import type { Level, Rollout as RolloutData, Texts } from "../types";
import { useTokenKeys, type Follow } from "../token_keys";
import { askedFor, rewrite, type WhatIf, written } from "../whatif";
import { WhatIfPanel } from "../whatif_panel";

export type View = "microscope" | "map" | "whatif";

const FOLLOW: Record<View, Follow> = { microscope: "always", whatif: "walking", map: "never" };

export interface RolloutProps {
  id: string;
  step: number;
  row: number;
  query: URLSearchParams;
}

export function Rollout({ id, step, row, query }: RolloutProps) {
  const rollout = useData<RolloutData>(paths.rollout(id, step, row));
  const texts = useData<Texts>(paths.texts);
  return (
    <main class="wide">
      <Await of={rollout}>
        {(data) => <Await of={texts}>{(words) => <Open {...{ id, query, words }} key={data.uid} rollout={data} />}</Await>}
      </Await>
    </main>
  );
}

interface OpenProps {
  id: string;
  query: URLSearchParams;
  rollout: RolloutData;
  words: Texts;
}

function Open({ id, query, rollout: stored, words }: OpenProps) {
  const { say } = usePrefs();
  const rollout = useMemo(() => withDerived(stored), [stored]);
  const [what, setWhat] = useState<WhatIf>(() => askedFor(rollout, query));
  const [level, setLevel] = useState<Level>(firstLevel);
  const view = (query.get("view") ?? "microscope") as View;
  const range = useMemo(() => readRange(query.get("range"), rollout.tokens.length), [query.get("range"), rollout]);
  const asked = Number(query.get("token") ?? range?.[0] ?? 0);
  const selected = rollout.tokens.length ? Math.min(Math.max(0, asked || 0), rollout.tokens.length - 1) : null;
  const preferred = rollout.columns.advantages ? "advantages" : Object.keys(rollout.columns)[0];
  const wanted = query.get("column") ?? preferred;

  const actual = useMemo((): Book => {
    const { columns, settings, whitening, account } = rollout;
    return { rollout, columns, settings, whitening, account };
  }, [rollout]);
  const book = useMemo(() => (view === "whatif" ? rewrite(rollout, what) : actual), [view, rollout, what, actual]);
  const column = wanted in book.columns || lacks(rollout, wanted) ? wanted : preferred;

  const address = (change: Partial<{ token: number | null; column: string; view: View; range: Range | null }>) => {
    const next = { token: selected, column, view, range, ...change };
    return to.rollout(id, rollout.step, rollout.row, {
      token: next.token,
      range: next.range && `${next.range[0]}-${next.range[1] - 1}`,
      column: next.column === preferred ? null : next.column,
      view: next.view === "microscope" ? null : next.view,
      ...(next.view === "whatif" ? written(rollout, what) : {}),
    });
  };
  const told = JSON.stringify(written(rollout, askedFor(rollout, query)));
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (view !== "whatif" || told === JSON.stringify(written(rollout, what))) return;
    clearTimeout(timer.current);
    setWhat(askedFor(rollout, query));
  }, [told]); // an address that was pasted
  const latest = useRef(address); // the token may have been changed while the timer ran
  latest.current = address;
  const tried = (next: WhatIf) => {
    setWhat(next);
    clearTimeout(timer.current); // not at every pixel of a slider's way
    timer.current = setTimeout(() => location.hash !== latest.current({}) && replace(latest.current({})), 300);
  };
  const select = (token: number) => replace(address({ token }));
  const mark = (marked: Range | null) => replace(address({ range: marked, token: marked ? nearest(selected, marked) : selected }));
  const dialogue = useDialogue(id, rollout.step, rollout.row);
  useTokenKeys(rollout.tokens.length, selected, select, {
    range,
    onRange: (marked, token) => replace(address({ range: marked, token })),
  }, FOLLOW[view]);
  useEffect(() => remember("level", level), [level]);

  const summed = rollout.settings.estimator === null || effectiveLambda(rollout.settings.estimator, 1) !== null || view === "map";
  const tabs: [View, string][] = [
    ["microscope", say("显微镜", "Microscope")],
    ...(summed ? [["map", say("信用图", "Credit map")] as [View, string]] : []),
    ["whatif", say("假如", "What if")],
  ];
  return (
    <>
      <RolloutHead id={id} rollout={rollout} asked={view !== "microscope"}
        keep={{ column: column === preferred ? null : column, view: view === "microscope" ? null : view }} />
      <nav class="tabs" aria-label={say("看法", "Views")}>
        {tabs.map(([name, text]) => (
          <a key={name} href={address({ view: name })} aria-current={name === view ? "page" : undefined}>
            {text}
          </a>
        ))}
        {has(paths.through(id, rollout.step, rollout.row)) && (
          <a href={to.through(id, { step: rollout.step, row: rollout.row })}>{say("随训练", "Through time")}</a>
        )}
      </nav>
      {view === "whatif" && <WhatIfPanel rollout={rollout} what={what} onChange={tried} />}
      <Microscope
        {...{ book, words, column, selected, range, level }}
        prompt={view === "microscope"}
        picture={view === "map" ? <CreditMap {...{ book, selected, range }} onSelect={select} /> : undefined}
        below={view === "microscope" && selected !== null && <AskPanel {...{ dialogue, book, level }} t={selected} onSelect={select} />}
        onColumn={(name) => replace(address({ column: name }))}
        onSelect={select}
        onRange={mark}
        onLevel={setLevel}
      />
    </>
  );
}

/** "120-180", both ends included, as far as the response reaches; null for anything else. */
function readRange(text: string | null, count: number): Range | null {
  const found = /^(\d{1,9})-(\d{1,9})$/.exec(text ?? "");
  if (!found) return null;
  const [first, last] = [Number(found[1]), Math.min(Number(found[2]), count - 1)];
  return first <= last ? [first, last + 1] : null;
}

/** The selected token if it is within the range, else the range's first. */
const nearest = (selected: number | null, [first, last]: Range): number =>
  selected !== null && selected >= first && selected < last ? selected : first;
