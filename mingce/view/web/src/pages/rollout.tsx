/** The microscope: one rollout, every token in its colour, its curves, its account; the credit map; what if. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { has, paths, useData } from "../api";
import { AskPanel } from "../ask_panel";
import { useDialogue } from "../asking";
import { CreditMap } from "../credit_map";
import type { Book } from "../facts";
import { Await } from "../loading";
import { Microscope } from "../microscope";
import { firstLevel, remember, usePrefs } from "../prefs";
import { replace, to } from "../route";
import { RolloutHead } from "../rollout_head";
import type { Level, Rollout as RolloutData, Texts } from "../types";
import { useTokenKeys } from "../token_keys";
import { recorded, rewrite, type WhatIf } from "../whatif";
import { WhatIfPanel } from "../whatif_panel";

export type View = "microscope" | "map" | "whatif";

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

function Open({ id, query, rollout, words }: OpenProps) {
  const { say } = usePrefs();
  const [what, setWhat] = useState<WhatIf>(() => recorded(rollout));
  const [level, setLevel] = useState<Level>(firstLevel);
  const view = (query.get("view") ?? "microscope") as View;
  const asked = Number(query.get("token") ?? 0);
  const selected = rollout.tokens.length ? Math.min(Math.max(0, asked || 0), rollout.tokens.length - 1) : null;
  const preferred = rollout.columns.advantages ? "advantages" : Object.keys(rollout.columns)[0];
  const wanted = query.get("column") ?? preferred;

  const actual = useMemo((): Book => {
    const { columns, settings, whitening, account } = rollout;
    return { rollout, columns, settings, whitening, account };
  }, [rollout]);
  const book = useMemo(() => (view === "whatif" ? rewrite(rollout, what) : actual), [view, rollout, what, actual]);
  const column = wanted in book.columns ? wanted : preferred;

  const address = (change: Partial<{ token: number | null; column: string; view: View }>) => {
    const next = { token: selected, column, view, ...change };
    return to.rollout(id, rollout.step, rollout.row, {
      token: next.token,
      column: next.column === preferred ? null : next.column,
      view: next.view === "microscope" ? null : next.view,
    });
  };
  const select = (token: number) => replace(address({ token }));
  const dialogue = useDialogue(id, rollout.step, rollout.row);
  useTokenKeys(rollout.tokens.length, selected, select);
  useEffect(() => remember("level", level), [level]);

  const tabs: [View, string][] = [
    ["microscope", say("显微镜", "Microscope")],
    ["map", say("信用图", "Credit map")],
    ["whatif", say("假如", "What if")],
  ];
  return (
    <>
      <RolloutHead id={id} rollout={rollout} />
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
      {view === "whatif" && <WhatIfPanel rollout={rollout} what={what} onChange={setWhat} />}
      <Microscope
        {...{ book, words, column, selected, level }}
        picture={view === "map" ? <CreditMap book={book} selected={selected} onSelect={select} /> : undefined}
        below={view === "microscope" && selected !== null && <AskPanel {...{ dialogue, book, level }} t={selected} onSelect={select} />}
        onColumn={(name) => replace(address({ column: name }))}
        onSelect={select}
        onLevel={setLevel}
      />
    </>
  );
}
