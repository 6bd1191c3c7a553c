/** Answers to one prompt below each other, their tokens coloured by one column. */
import { useMemo, useState } from "preact/hooks";
import { has, paths } from "./api";
import { Chips } from "./chips";
import { Glance } from "./glance";
import { Legend } from "./legend";
import { scaleOf, sideOf } from "./derived";
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

/** The chosen column, at first the first of the preferred that is there, how to choose another, and which there are. */
export function useColumn(answers: readonly Answer[], ...preferred: string[]): [string, (name: string) => void, [string, string][]] {
  const [chosen, choose] = useState<string | null>(null);
  const columns = useMemo(() => COLUMNS.filter(([name]) => answers.some((answer) => answer.columns[name])), [answers]);
  const wanted = [chosen, ...preferred].find((one) => columns.some(([name]) => name === one));
  return [wanted ?? columns[0]?.[0] ?? preferred[0], choose, columns];
}

export interface AnswerListProps {
  id: string;
  answers: readonly Answer[];
  column: string;
  selected: number | null;
  /** Told which token was clicked; without it the answer's own page is opened at that token. */
  onSelect?: (t: number) => void;
  /** How many are shown until all are wanted. */
  most?: number;
}

export function AnswerList({ id, answers, column, selected, onSelect, most = Infinity }: AnswerListProps) {
  const { say } = usePrefs();
  const [all, setAll] = useState(false);
  const few = useMemo(() => spreadOver(answers, most), [answers, most]);
  const shown = all ? answers : few;
  const limit = useMemo(() => scaleOf(column, ...answers.map((answer) => answer.columns[column] ?? [])), [answers, column]);
  const longest = Math.max(1, ...answers.map((answer) => answer.tokens.length));
  return (
    <>
      <Legend limit={limit} symbol={column} column={column} />
      <ol class={shown.length > most || most === Infinity ? "answers scrolls" : "answers"}>
        {shown.map((answer) => {
          const name = say(`第 ${answer.step} 步`, `step ${answer.step}`);
          const open = (token: number | null) => to.rollout(id, answer.step, answer.row, { token });
          const there = has(paths.rollout(id, answer.step, answer.row));
          return (
            <Line key={`${answer.step}-${answer.row}`} {...{ answer, column, limit, selected, longest, name }}
              open={there ? open(selected) : null} onSelect={onSelect ?? ((t) => there && go(open(t)))} />
          );
        })}
      </ol>
      {few.length < answers.length && (
        <button type="button" class="plain link" data-answers={all ? "all" : "few"} aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? say("只看其中几个", "Only some of them") : say(`全部 ${answers.length} 个回答`, `All ${answers.length} answers`)}
        </button>
      )}
    </>
  );
}

/** As many of them, from the first to the last, as evenly spread as can be. */
function spreadOver<T>(all: readonly T[], most: number): readonly T[] {
  if (all.length <= most) return all;
  return Array.from({ length: most }, (_, i) => all[Math.round((i * (all.length - 1)) / (most - 1))]);
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
        {long && values && <Glance {...{ values, mask, limit, longest, selected, onSelect }} side={sideOf(column)} label={`${name}: ${column}`} />}
        <Chips tokens={answer.tokens} column={values} {...{ mask, limit, selected, onSelect }} label={answer.response} />
      </div>
    </li>
  );
}
