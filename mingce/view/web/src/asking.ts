/** A dialogue with the tutor about one rollout: the questions asked here and what the server answered. */
import { useRef, useState } from "preact/hooks";
import { paths, post, useData } from "./api";
import type { Lang, Level, Run, Taught } from "./types";

const TURNS = 20; // as the server takes them

export interface Turn {
  question: string;
  token: number;
  /** A topic opened by its button. */
  topic?: string;
}

export interface Round extends Turn {
  answer: Taught | null;
  error: string | null;
}

export interface Dialogue {
  rounds: Round[];
  waiting: boolean;
  ask: (turn: Turn, lang: Lang, level: Level) => void;
  forget: () => void;
  /** The same question in a terminal; without one, a dialogue there. */
  command: (question: string | null, token: number, more?: string) => string;
}

/** The server remembers nothing that counts: every question brings those before it along. */
export function useDialogue(run: string, step: number, row: number): Dialogue {
  const [rounds, setRounds] = useState<Round[]>([]);
  const [waiting, setWaiting] = useState(false);
  const now = useRef(0); // an answer to a forgotten dialogue is not shown
  const path = useData<Run>(paths.run(run)).data?.path ?? run;

  async function ask(turn: Turn, lang: Lang, level: Level): Promise<void> {
    const mine = now.current;
    const before = rounds.filter((round) => round.answer).map(({ question, token, topic }) => ({ question, token, topic }));
    setWaiting(true);
    let round: Round;
    try {
      const turns = [...before, turn].slice(-TURNS);
      round = { ...turn, answer: await post<Taught>(paths.ask, { run, step, row, lang, level, turns }), error: null };
    } catch (error) {
      round = { ...turn, answer: null, error: (error as Error).message };
    }
    if (mine !== now.current) return;
    setWaiting(false);
    setRounds((all) => [...all.filter((one) => one.answer), round]);
  }

  return {
    rounds,
    waiting,
    ask: (turn, lang, level) => void ask(turn, lang, level),
    forget() {
      now.current += 1;
      setRounds([]);
      setWaiting(false);
    },
    command: (question, token, more = "") =>
      `mingce ask ${question === null ? "" : `${quoted(question)} `}${quoted(path)} --step ${step} --rollout ${row} --token ${token}${more}`,
  };
}

/** A word for a shell. */
const quoted = (text: string): string => (/^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
