/** Credit by hand: type tokens, scores, KLs and values, and see what the estimators make of them. */
import { useMemo, useState } from "preact/hooks";
import { paths, useData } from "../api";
import { Chips } from "../chips";
import { estimate, klRewards, specOf, whiten } from "../credit";
import { CreditSliders } from "../credit_sliders";
import { Errata } from "../errata";
import { HandTable } from "../hand_table";
import { Legend } from "../legend";
import { Await } from "../loading";
import { largest } from "../numbers";
import { usePrefs } from "../prefs";
import { sheetOf, title, type Line, type Sheet } from "../seeds";
import { Strip } from "../strip";
import { GAE } from "../specs.generated";
import { useTokenKeys } from "../token_keys";
import type { Columns, Num, Playground as PlaygroundData, SeedExample } from "../types";
import type { WhatIf } from "../whatif";

const FIRST: SeedExample = {
  id: "请问1+1=2？",
  seed: "",
  tokens: ["是", "的", "，", "等于", "2", "！"],
  given: { scores: [0, 0, 0, 0, 0, 1], kl: [0.1, 0.05, -0.05, 0.1, 0.2, 0.05], values: [0.2, 0.25, 0.3, 0.35, 0.45, 0.6], beta: 0.1, gamma: 1, lam: 0.95 },
};
const BY_HAND = ["rewards", "values", "response_mask"]; // what one response typed in can give an estimator

export function Playground() {
  const { say } = usePrefs();
  const data = useData<PlaygroundData>(paths.playground);
  return (
    <main>
      <h1>{say("练习场", "Playground")}</h1>
      <p class="lead">{say("自己填每个 token 的得分、KL 和价值，看信用怎样分到每个 token。", "Fill in each token's score, KL and value, and see how credit is shared among the tokens.")}</p>
      <Await of={data}>{(found) => <Bench data={found} />}</Await>
    </main>
  );
}

function what(sheet: Sheet): WhatIf {
  return { gamma: sheet.gamma, lam: sheet.lam, beta: sheet.beta, estimator: GAE, n: 5, k: 3, whiten: "none" };
}

function Bench({ data }: { data: PlaygroundData }) {
  const { say } = usePrefs();
  const [example, setExample] = useState<SeedExample>(FIRST);
  const [lines, setLines] = useState<Line[]>(() => sheetOf(FIRST)!.lines);
  const [settings, setSettings] = useState<WhatIf>(() => what(sheetOf(FIRST)!));
  const [selected, setSelected] = useState<number | null>(0);
  const usable = (all: SeedExample[]) => all.filter((one) => sheetOf(one));
  const menu = [FIRST, ...usable(data.examples), ...usable(data.errata)];
  const columns = useMemo(() => compute(lines, settings), [lines, settings]);
  const limit = largest(columns.advantages);
  const tokens = lines.map((line, t) => ({ id: t, text: line.token, glyph: t }));
  const load = (chosen: SeedExample) => {
    const sheet = sheetOf(chosen)!;
    setExample(chosen);
    setLines(sheet.lines);
    setSettings(what(sheet));
    setSelected(0);
  };
  useTokenKeys(lines.length, selected, setSelected);
  return (
    <>
      <section class="card">
        <div class="chips-head">
          <label>
            {say("例子", "Example")}
            <select data-choose="example" value={menu.indexOf(example)} onChange={(event) => load(menu[Number(event.currentTarget.value)])}>
              {menu.map((one, i) => (
                <option key={i} value={i}>
                  {data.errata.includes(one) ? say("勘误 ", "erratum ") : ""}
                  {title(one)}
                </option>
              ))}
            </select>
          </label>
          <Legend limit={limit} symbol="A" />
        </div>
        <Chips tokens={tokens} column={columns.advantages} mask={columns.response_mask} limit={limit} selected={selected}
          onSelect={setSelected} label={say("token", "Tokens")} />
        <CreditSliders what={settings} onChange={setSettings} possible={(name) => specOf(name)!.inputs.every((input) => BY_HAND.includes(input))}
          whitenings={["none", "group"]} hasKl />
        <Strip tokens={tokens} columns={columns} column="advantages" limit={limit} mask={columns.response_mask} after={0}
          selected={selected} onSelect={setSelected} />
      </section>
      <Errata example={example} columns={columns} />
      <HandTable lines={lines} columns={columns} onChange={setLines} selected={selected} onSelect={setSelected} />
      <section class="card">
        <h2>{say("勘误一览", "All errata")}</h2>
        <p class="muted">{say("原始对话里算错或说错的地方，与正确的并列。", "Where the original dialogues computed or said something wrong, beside what is right.")}</p>
        {data.errata.map((one, i) => (
          <details key={i} class="erratum">
            <summary>{title(one)}</summary>
            <Errata example={one} columns={sheetOf(one) ? compute(sheetOf(one)!.lines, what(sheetOf(one)!)) : null} bare />
          </details>
        ))}
      </section>
    </>
  );
}

function compute(lines: readonly Line[], settings: WhatIf): Columns {
  const of = (get: (line: Line) => number) => [lines.map(get)];
  const [scores, kl, values] = [of((line) => line.score), of((line) => line.kl), of((line) => line.value)];
  const mask = of((line) => Number(line.chosen));
  const rewards = klRewards(scores, kl, mask, settings.beta);
  const credit = estimate(settings.estimator, { rewards, values, mask }, settings);
  const kept = (row: readonly number[]): Num[] => row.map((x, t) => (mask[0][t] && Number.isFinite(x) ? x : null));
  const columns: Columns = { scores: scores[0], kl: kl[0], values: kept(values[0]), response_mask: mask[0], rewards: kept(rewards[0]), advantages: kept(credit.advantages[0]) };
  if (credit.deltas) columns.deltas = kept(credit.deltas[0]);
  if (credit.returns) columns.returns = kept(credit.returns[0]);
  if (settings.whiten !== "none") columns.whitened_advantages = kept(whiten(credit.advantages, mask)[0]);
  return columns;
}
