/** A conversation turn by turn: its curve, and when each turn was decoded and its environment stepped. */
import { useWidth } from "./canvas";
import { lineColours } from "./colours";
import type { Book } from "./facts";
import { brief, number } from "./numbers";
import { usePrefs } from "./prefs";
import { DASHES, range } from "./strip";
import { turnsOf, type Turn } from "./turns";
import type { RowClock, TurnClock } from "./types";

const [HIGH, EDGE] = [150, 44];
const LINES: [keyof Turn & ("value" | "returns" | "advantage"), string, string][] = [
  ["value", "values", "V"],
  ["returns", "returns", "R"],
  ["advantage", "advantages", "A"],
];

export function TurnsCard({ book, selected, onSelect }: { book: Book; selected: number | null; onSelect: (t: number) => void }) {
  const { say } = usePrefs();
  const turns = turnsOf(book.columns);
  const clocks = book.rollout.clocks;
  if (turns.length < 2 && !clocks.length) return null;
  const now = selected === null ? null : (book.columns.turn?.[selected] ?? null);
  return (
    <section class="card turns">
      <h2>{say("逐轮", "Turn by turn")}</h2>
      {turns.length > 1 && <Curve turns={turns} />}
      <div class="table-box">
        <table>
          <thead>
            <tr>
              <th class="number">{say("轮", "turn")}</th>
              <th class="number">{say("token 数", "tokens")}</th>
              <th class="number" title={say("这一轮的奖励之和", "sum of the turn's rewards")}>Σ r</th>
              <th class="number" title={say("这一轮开始时的价值", "value of the state in which it begins")}>V</th>
              <th class="number" title={say("这一轮开始时的回报", "return from where it begins")}>R</th>
              <th class="number" title={say("这一轮 token 优势的平均", "mean advantage of its tokens")}>Ā</th>
            </tr>
          </thead>
          <tbody>
            {turns.map((one) => (
              <tr key={one.turn} data-turn={one.turn} class={one.turn === now ? "selected link" : "link"} onClick={() => onSelect(one.first)}>
                <td class="number"><button type="button" class="plain link" aria-current={one.turn === now}>{one.turn + 1}</button></td>
                <td class="number">{one.tokens}</td>
                <td class="number">{number(one.reward)}</td>
                <td class="number">{number(one.value)}</td>
                <td class="number">{number(one.returns)}</td>
                <td class="number">{number(one.advantage)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="muted hint">
        {say(
          "环境给的话不是动作：没有奖励、KL、损失，也不占折扣；信用从后一轮直接付给前一轮。",
          "What the environment said is no action: it has no reward, KL or loss and takes no discount; credit goes from a turn straight to the one before it.",
        )}
      </p>
      {clocks.length > 0 && <Timeline clocks={clocks} row={book.rollout.row} />}
    </section>
  );
}

function Curve({ turns }: { turns: readonly Turn[] }) {
  const { say, dark } = usePrefs();
  const [box, wide] = useWidth<HTMLDivElement>();
  const there = LINES.filter(([name]) => turns.some((one) => one[name] !== null));
  const known = turns.flatMap((one) => [one.reward, ...there.map(([name]) => one[name])]).filter((x): x is number => x !== null);
  if (!known.length) return null;
  const [low, high] = range(known);
  const x = (i: number) => EDGE + ((i + 0.5) * (wide - EDGE)) / turns.length;
  const y = (v: number) => 8 + (1 - (v - low) / (high - low)) * (HIGH - 34);
  const colour = lineColours(dark);
  const named = (turn: number) => (wide / turns.length < 60 ? String(turn + 1) : say(`第 ${turn + 1} 轮`, `turn ${turn + 1}`));
  return (
    <div ref={box} class="turn-curve">
    <svg width={wide} height={HIGH} role="img" aria-label={say("逐轮的价值、回报与优势", "Value, return and advantage by turn")}>
      <line class="axis" x1={EDGE} x2={wide} y1={y(0)} y2={y(0)} />
      {[low, 0, high].filter((v, i) => i === 1 || Math.abs(y(v) - y(0)) > 10).map((v) => (
        <text key={v} class="tick" x={EDGE - 6} y={y(v) + 4} text-anchor="end">{brief(v)}</text>
      ))}
      {turns.map((one, i) => (
        <g key={one.turn}>
          {one.reward !== null && (
            <rect x={x(i) - 4} width={8} y={Math.min(y(0), y(one.reward))} height={Math.abs(y(one.reward) - y(0))} fill={colour.rewards} opacity={0.55} />
          )}
          <text class="tick" x={x(i)} y={HIGH - 6} text-anchor="middle">{named(one.turn)}</text>
        </g>
      ))}
      {there.map(([name, column, symbol], k) => {
        const points = turns.flatMap((one, i) => (one[name] === null ? [] : [[x(i), y(one[name] as number)]]));
        return (
          <g key={name} data-line={column} stroke={colour[column]} fill={colour[column]}>
            <polyline points={points.map((p) => p.join(",")).join(" ")} fill="none" stroke-width={2} stroke-dasharray={(DASHES[column] ?? []).join(" ")} />
            {points.map(([a, b], i) => <circle key={i} cx={a} cy={b} r={3} stroke="none" />)}
            <text x={k * 13} y={HIGH - 6} stroke="none" class="tick-name">{symbol}</text>
          </g>
        );
      })}
    </svg>
    </div>
  );
}

/** Seconds in the shortest unit that reads well. */
const seconds = (s: number): string => (s < 1 ? `${number(1000 * s, 1)} ms` : `${number(s, 2)} s`);

function Timeline({ clocks, row }: { clocks: readonly RowClock[]; row: number }) {
  const { say } = usePrefs();
  const ends = (one: TurnClock) => Math.max(one.decoded_to, one.stepped_to ?? 0);
  const whole = Math.max(1e-9, ...clocks.flatMap((one) => one.turns.map(ends)));
  const spans = (one: TurnClock): [string, number, number][] => [
    ["decoded", one.decoded_from, one.decoded_to],
    ...(one.stepped_from === null || one.stepped_to === null ? [] : [["stepped", one.stepped_from, one.stepped_to] as [string, number, number]]),
  ];
  const name: Record<string, string> = { decoded: say("解码", "decoding"), stepped: say("环境", "environment") };
  return (
    <figure class="timeline">
      <figcaption>
        <b>{say("时间线", "Timeline")}</b> <i class="span decoded" /> {name.decoded} <i class="span stepped" /> {name.stepped}{" "}
        <span class="muted">{say(`共 ${seconds(whole)}；同一提示的回答一起解码`, `${seconds(whole)} in all; samples of a prompt are decoded together`)}</span>
      </figcaption>
      {clocks.map((one) => (
        <div key={one.row} class={one.row === row ? "lane own" : "lane"} data-row={one.row}>
          <span class="lane-name">#{one.row}</span>
          <div class="lane-box">
            {one.turns.flatMap((turn) =>
              spans(turn).map(([kind, from, to]) => (
                <i key={`${turn.turn}${kind}`} class={`span ${kind}`} title={`${say(`第 ${turn.turn + 1} 轮`, `turn ${turn.turn + 1}`)} · ${name[kind]} ${seconds(to - from)}`}
                  style={{ left: `${(100 * from) / whole}%`, width: `max(2px, ${(100 * (to - from)) / whole}%)` }} />
              )),
            )}
          </div>
        </div>
      ))}
    </figure>
  );
}
