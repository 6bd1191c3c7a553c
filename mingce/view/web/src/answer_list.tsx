/** Answers to one prompt below each other, their tokens coloured by one column. */
import { useMemo, useState } from "preact/hooks";
import { has, paths } from "./api";
import { Chips } from "./chips";
import { Glance } from "./glance";
import { Legend } from "./legend";
import { scaleOf } from "./derived";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import { go, to } from "./route";
import type { Answer } from "./types";

const LONG = 60; // tokens that are read at once

export const COLUMNS: [string, string][] = [
  ["advantages", "Aₜ"],
  ["values", "V(sₜ)"],
  ["returns", "Rₜ"],
  ["rewards", "rₜ"],
  ["deltas", "δₜ"],
  ["entropy", "Hₜ"],
  ["kl", "kₜ"],
];

/** The chosen column, how to choose another, and which there are. */
export function useColumn(answers: readonly Answer[], preferred: string): [string, (name: string) => void, [string, string][]] {
  const [chosen, choose] = useState(preferred);
  const columns = useMemo(() => COLUMNS.filter(([name]) => answers.some((answer) => answer.columns[name])), [answers]);
  const there = columns.some(([name]) => name === chosen);
  return [there ? chosen : (columns[0]?.[0] ?? chosen), choose, columns];
}

export interface AnswerListProps {
  id: string;
  answers: readonly Answer[];
  column: string;
  selected: number | null;
  /** Told which token was clicked; without it the answer's own page is opened at that token. */
  onSelect?: (t: number) => void;
}

export function AnswerList({ id, answers, column, selected, onSelect }: AnswerListProps) {
  const { say } = usePrefs();
  const limit = useMemo(() => scaleOf(column, ...answers.map((answer) => answer.columns[column] ?? [])), [answers, column]);
  const longest = Math.max(1, ...answers.map((answer) => answer.tokens.length));
  return (
    <>
      <Legend limit={limit} symbol={column} />
      <ol class="answers">
        {answers.map((answer) => {
          const name = say(`第 ${answer.step} 步`, `step ${answer.step}`);
          const open = (token: number | null) => to.rollout(id, answer.step, answer.row, { token });
          const there = has(paths.rollout(id, answer.step, answer.row));
          return (
            <Line key={`${answer.step}-${answer.row}`} {...{ answer, column, limit, selected, longest, name }}
              open={there ? open(selected) : null} onSelect={onSelect ?? ((t) => there && go(open(t)))} />
          );
        })}
      </ol>
    </>
  );
}

interface LineProps {
  answer: Answer;
  column: string;
  limit: number;
  selected: number | null;
  longest: number;
  name: string;
  open: string | null;
  onSelect: (t: number) => void;
}

/** An answer's tokens; a long one folded to its first lines, all of it as a curve above them. */
function Line({ answer, column, limit, selected, longest, name, open, onSelect }: LineProps) {
  const { say } = usePrefs();
  const [whole, setWhole] = useState(false);
  const values = answer.columns[column] ?? null;
  const mask = answer.columns.response_mask ?? null;
  const long = answer.tokens.length > LONG;
  return (
    <li class={long ? "long" : undefined}>
      <span class="answer-step">
        {open ? <a href={open}>{name}</a> : name}
        <small class="muted">
          {say("得分", "score")} {number(answer.score, 2)}
        </small>
        {longest > LONG && <small class="muted">{say(`${answer.tokens.length} 个 token`, `${answer.tokens.length} tokens`)}</small>}
        {long && (
          <button type="button" class="plain link" aria-expanded={whole} onClick={() => setWhole(!whole)}>
            {whole ? say("收起", "Less") : say("全文", "All of it")}
          </button>
        )}
      </span>
      <div class={long && !whole ? "answer-text folded" : "answer-text"}>
        {long && values && <Glance {...{ values, mask, limit, longest, selected, onSelect }} label={`${name}: ${column}`} />}
        <Chips tokens={answer.tokens} column={values} {...{ mask, limit, selected, onSelect }} label={answer.response} />
      </div>
    </li>
  );
}
