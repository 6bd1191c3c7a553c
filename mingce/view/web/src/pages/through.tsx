/** The same prompt across training: its answers step by step, and one token position followed through them. */
import { useState } from "preact/hooks";
import { AnswerList, useColumn } from "../answer_list";
import { has, paths, runOf, useData, validationOf } from "../api";
import { tokenName } from "../chips";
import { paint } from "../colours";
import { Await } from "../loading";
import { largest, number } from "../numbers";
import { usePrefs } from "../prefs";
import { Question } from "../question";
import { to } from "../route";
import { Sparkline } from "../sparkline";
import type { Answer, Run, Prompts as PromptsData, Recurring, Through as ThroughData } from "../types";

export function Through({ id, query }: { id: string; query: URLSearchParams }) {
  const { say } = usePrefs();
  const [step, row] = [query.get("step"), query.get("row")];
  const data = useData<ThroughData | PromptsData>(
    step !== null && row !== null ? paths.through(id, Number(step), Number(row)) : paths.prompts(id),
  );
  const run = useData<Run>(paths.run(id));
  return (
    <main>
      <h1>
        {id === runOf(id) ? say("同一个提示，随训练", "One prompt through time") : say("一个留出的提示，随训练", "A held-out prompt through time")}
      </h1>
      {(data.data?.steps_left_out ?? 0) > 0 && (
        <p class="card notice">
          {say(`步数太多：均匀挑选着看，略过了 ${data.data!.steps_left_out} 步。`, `There are too many steps: ${data.data!.steps_left_out} of them, evenly spread, were not looked through.`)}
        </p>
      )}
      <Await of={data}>
        {(found) =>
          "answers" in found ? (
            <Answers id={id} prompt={found.question} answers={found.answers} />
          ) : (
            <Prompts id={id} prompts={found.prompts} run={run.data} />
          )
        }
      </Await>
    </main>
  );
}

interface PromptsProps {
  id: string;
  prompts: Recurring[];
  run: Run | null;
}

/** The held-out prompts, which every validation asks, before those of training, which seldom come twice. */
function Prompts({ id, prompts, run }: PromptsProps) {
  const { say } = usePrefs();
  const own = id === runOf(id);
  const asked = own && run !== null && run.validation_steps.length > 0 && has(paths.prompts(validationOf(id)));
  const heldOut = useData<PromptsData>(asked ? paths.prompts(validationOf(id)) : null).data?.prompts ?? [];
  const again = own ? prompts.filter((one) => one.steps > 1) : prompts;
  const latest = run?.ledger_steps.at(-1) ?? null;
  return (
    <>
      {heldOut.length > 0 && (
        <>
          <h2>{say("留出的提示", "Held-out prompts")}</h2>
          <PromptList id={validationOf(id)} prompts={heldOut} />
          <h2>{say("训练里不止一步有的提示", "Prompts that came in more than one step of training")}</h2>
        </>
      )}
      {again.length > 0 && <PromptList id={id} prompts={again} />}
      {again.length === 0 && (
        <p class="card notice">
          {own ? say("没有重复出现的提示。", "No prompt recurs.") : say("没有留出的提示。", "There are no held-out prompts.")}{" "}
          {own && latest !== null && <a href={to.step(id, latest)}>{say("从最后一步里选一条", "Choose a rollout of the last step")}</a>}
        </p>
      )}
    </>
  );
}

function PromptList({ id, prompts }: { id: string; prompts: Recurring[] }) {
  const { say } = usePrefs();
  return (
    <ul class="card prompt-list">
      {prompts.map((one) => (
        <li key={one.prompt}>
          <a href={to.through(id, { step: one.step, row: one.row })}>{one.question}</a>
          <span class="muted">{say(`${one.steps} 步，${one.answers} 个回答`, `${many(one.answers, "answer")} in ${many(one.steps, "step")}`)}</span>
        </li>
      ))}
    </ul>
  );
}

const many = (n: number, what: string): string => `${n} ${what}${n === 1 ? "" : "s"}`;

function Answers({ id, prompt, answers }: { id: string; prompt: string; answers: Answer[] }) {
  const { say } = usePrefs();
  const [column, setColumn, there] = useColumn(answers, "advantages", "values", "entropy");
  const [position, setPosition] = useState(0);
  const longest = Math.max(1, ...answers.map((answer) => answer.tokens.length));
  return (
    <>
      <section class="card">
        <Question text={prompt} />
        <div class="chips-head">
          <label>
            {say("按哪一列着色", "Colour by")}
            <select value={column} onChange={(event) => setColumn(event.currentTarget.value)}>
              {there.map(([name, symbol]) => (
                <option key={name} value={name}>
                  {symbol} · {name}
                </option>
              ))}
            </select>
          </label>
        </div>
        <AnswerList id={id} answers={answers} column={column} selected={position} onSelect={setPosition} />
      </section>
      <section class="card">
        <h2>{say(`第 ${position} 个位置`, `Position ${position}`)}</h2>
        <label class="position">
          t
          <input type="range" min={0} max={longest - 1} value={position} aria-label={say("位置", "Position")}
            onInput={(event) => setPosition(Number(event.currentTarget.value))} />
        </label>
        <Position id={id} answers={answers} position={position} columns={there} />
      </section>
    </>
  );
}

interface PositionProps {
  id: string;
  answers: Answer[];
  position: number;
  columns: [string, string][];
}

function Position({ id, answers, position, columns }: PositionProps) {
  const { say, dark } = usePrefs();
  const lines = answers.filter((answer) => position < answer.tokens.length);
  const limits = new Map(columns.map(([name]) => [name, largest(answers.flatMap((answer) => answer.columns[name] ?? []))]));
  const of = (name: string) => lines.map((answer) => answer.columns[name]?.[position] ?? null);
  return (
    <div class="table-box">
      <table>
        <thead>
          <tr>
            <th class="number">{say("步", "step")}</th>
            <th>token</th>
            {columns.map(([name, symbol]) => (
              <th key={name} class="number">
                <span class="column-name">{name}</span>
                <span class="muted">{symbol}</span>
                <Sparkline values={of(name)} width={84} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {lines.map((answer) => (
            <tr key={`${answer.step}-${answer.row}`}>
              <td class="number">
                <a href={to.rollout(id, answer.step, answer.row, { token: position })}>{answer.step}</a>
              </td>
              <td class="token">{tokenName(answer.tokens, position)}</td>
              {columns.map(([name]) => {
                const value = answer.columns[name]?.[position] ?? null;
                const signed = name === "advantages" || name === "deltas" || name === "rewards";
                return (
                  <td key={name} class="number" style={signed ? paint(value, limits.get(name)!, dark) : undefined}>
                    {number(value)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
