/** Answers to one prompt below each other, their tokens coloured by one column. */
import { useMemo, useState } from "preact/hooks";
import { has, paths } from "./api";
import { Chips } from "./chips";
import { Legend } from "./legend";
import { scaleOf } from "./derived";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import { go, to } from "./route";
import type { Answer } from "./types";

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
  const limit = useMemo(() => scaleOf(column, answers.flatMap((answer) => answer.columns[column] ?? [])), [answers, column]);
  return (
    <>
      <Legend limit={limit} symbol={column} />
      <ol class="answers">
        {answers.map((answer) => {
          const name = say(`第 ${answer.step} 步`, `step ${answer.step}`);
          const open = (token: number | null) => to.rollout(id, answer.step, answer.row, { token });
          const there = has(paths.rollout(id, answer.step, answer.row));
          return (
            <li key={`${answer.step}-${answer.row}`}>
              <span class="answer-step">
                {there ? <a href={open(selected)}>{name}</a> : name}{" "}
                <span class="muted">{number(answer.score, 2)}</span>
              </span>
              <Chips tokens={answer.tokens} column={answer.columns[column] ?? null} mask={answer.columns.response_mask ?? null}
                limit={limit} selected={selected} onSelect={onSelect ?? ((t) => there && go(open(t)))} label={answer.response} />
            </li>
          );
        })}
      </ol>
    </>
  );
}
