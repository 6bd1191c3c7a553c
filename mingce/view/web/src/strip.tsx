/** The tokens in a line, and under each of them its numbers as curves.
 *
 * Numbers about a state, V(s_t) and R_t, stand on the border before token t; numbers about the choice of token t stand
 * under the token itself. Only what is in sight is drawn, so the length of a response does not matter.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { FONT, type Ink, ink, prepare, useWidth } from "./canvas";
import { useBrush } from "./brush";
import { tokenName, type Range } from "./chips";
import { lineColours, paint } from "./colours";
import { brief } from "./numbers";
import { usePrefs } from "./prefs";
import type { Columns, Num, Token } from "./types";

const LEFT = 58;
const TOKENS = 34;
const PANEL = 118;
const GAP = 16;
export const STATE = ["values", "returns"] as const;
export const ACTION = ["rewards", "deltas", "advantages"] as const;
export const SYMBOLS: Record<string, string> = { values: "V(sₜ)", returns: "Rₜ", rewards: "rₜ", deltas: "δₜ", advantages: "Aₜ",
  rollout_log_probs: "log q", old_log_probs: "log π_old", log_prob_gap: "gₜ" };
export const DASHES: Record<string, number[]> = { returns: [6, 3], deltas: [2, 3] };

export interface StripProps {
  tokens: readonly Token[];
  columns: Columns;
  column: string;
  limit: number;
  mask: readonly Num[] | null;
  after: Num;
  selected: number | null;
  onSelect: (t: number) => void;
  /** Told what is marked by dragging; null where nothing can be. */
  onRange?: ((range: Range) => void) | null;
  /** The number of the first token, where this is a part of a response. */
  first?: number;
}

export function Strip(props: StripProps) {
  const { tokens, columns, selected, onSelect, onRange, first = 0 } = props;
  const { say, dark } = usePrefs();
  const [ref, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [scroll, setScroll] = useState(0);
  const [hidden, setHidden] = useState<readonly string[]>([]);
  const colours = lineColours(dark);
  const room = Math.max(0, width - LEFT);
  const slot = Math.min(120, Math.max(44, room / Math.max(tokens.length + 0.5, 1)));
  const whole = slot * (tokens.length + 0.5);
  const there = [...STATE, ...ACTION].filter((name) => columns[name]);

  useEffect(() => {
    const box = ref.current;
    if (!box || selected === null || !room) return;
    const x = selected * slot;
    if (x < box.scrollLeft + slot || x > box.scrollLeft + room - 2 * slot) box.scrollLeft = x - room / 2;
  }, [selected, slot, room]);

  useLayoutEffect(() => {
    if (!canvas.current || width === 0) return;
    draw(canvas.current, props, { width, scroll, slot, dark, hidden, whole });
  });

  const at = (event: MouseEvent, near: boolean): number | null => {
    const t = Math.floor((event.clientX - ref.current!.getBoundingClientRect().left - LEFT + scroll) / slot);
    if (near) return first + Math.min(Math.max(t, 0), tokens.length - 1);
    return t >= 0 && t < tokens.length ? first + t : null;
  };
  const brush = useBrush(at, onSelect, onRange ?? undefined);

  return (
    <figure class="strip">
      <div class="strip-key">
        {there.map((name) => (
          <button
            key={name}
            type="button"
            class="key"
            aria-pressed={!hidden.includes(name)}
            onClick={() => setHidden(hidden.includes(name) ? hidden.filter((n) => n !== name) : [...hidden, name])}
          >
            <span class="key-line" style={{ background: colours[name] }} />
            {SYMBOLS[name]} <span class="muted">{name}</span>
          </button>
        ))}
      </div>
      <div
        class="strip-box"
        ref={ref}
        onScroll={(event) => setScroll((event.currentTarget as HTMLElement).scrollLeft)}
        role="img"
        aria-label={say("与 token 对齐的曲线", "Curves aligned under the tokens")}
      >
        <canvas ref={canvas} {...brush} class={onRange ? "brushed" : undefined} />
        <div class="strip-space" style={{ width: `${LEFT + whole}px` }} />
      </div>
      <figcaption>
        {STATE.some((name) => columns[name])
          ? say(
              "上：说出第 t 个 token 之前的状态 sₜ（点在 token 左边界）；下：选择第 t 个 token 这个动作（点在 token 正下方）。",
              "Above: the state sₜ, before token t (points on the token's left border). Below: the choice of token t (points under the token).",
            )
          : say("选择第 t 个 token 这个动作：点在 token 正下方。", "The choice of token t: points under the token.")}
      </figcaption>
    </figure>
  );
}

interface View {
  width: number;
  scroll: number;
  slot: number;
  dark: boolean;
  hidden: readonly string[];
  whole: number;
}

function draw(canvas: HTMLCanvasElement, props: StripProps, view: View): void {
  const { tokens, columns, column, limit, mask, selected } = props;
  const { width, scroll, slot, dark, hidden } = view;
  const panels = [
    { names: STATE, shift: 0 },
    { names: ACTION, shift: 0.5 },
  ].filter(({ names }) => names.some((name) => columns[name]));
  const height = TOKENS + panels.length * (PANEL + GAP) + 4;
  const context = prepare(canvas, width, height);
  const colour = ink(dark);
  const first = Math.max(0, Math.floor(scroll / slot) - 1);
  const last = Math.min(tokens.length, Math.ceil((scroll + width) / slot) + 1);
  const x = (t: number) => LEFT + t * slot - scroll;
  context.font = FONT;
  context.textBaseline = "middle";

  context.save();
  context.beginPath();
  context.rect(LEFT - 6, 0, width, height);
  context.clip();
  if (selected !== null) {
    context.fillStyle = colour.soft;
    context.fillRect(x(selected), 0, slot, height);
  }
  context.textAlign = "center";
  for (let t = first; t < last; t++) {
    const chosen = mask === null || !!mask[t];
    const { background, color } = paint(chosen ? (columns[column]?.[t] ?? null) : null, limit, dark);
    context.fillStyle = background;
    context.beginPath();
    context.roundRect(x(t) + 2, 4, slot - 4, TOKENS - 10, 4);
    context.fill();
    context.strokeStyle = t === selected ? colour.accent : colour.line;
    context.lineWidth = t === selected ? 2 : 1;
    context.stroke();
    context.fillStyle = color === "inherit" ? colour.muted : color;
    context.fillText(fitted(context, tokenName(tokens, t), slot - 8), x(t) + slot / 2, TOKENS / 2);
  }
  context.restore();

  for (const [i, { names, shift }] of panels.entries()) {
    const top = TOKENS + 6 + i * (PANEL + GAP);
    const shown = names.filter((name) => columns[name] && !hidden.includes(name));
    const seen = shown.flatMap((name) => columns[name].slice(first, last).filter((v): v is number => v !== null));
    const [low, high] = range(seen);
    const y = (v: number) => top + PANEL - 8 - ((v - low) / (high - low)) * (PANEL - 16);
    axis(context, colour, low, high, y, width);
    context.save();
    context.beginPath();
    context.rect(LEFT - 6, top - 6, width, PANEL + 12);
    context.clip();
    for (const name of shown) {
      const place = (t: number) => x(t) + shift * slot;
      curve(context, name, columns[name], { first, last, mask, place, y, slot, selected }, lineColours(dark)[name]);
    }
    if (shift === 0 && last === tokens.length && columns.values && !hidden.includes("values")) {
      after(context, props.after ?? 0, x(tokens.length), y, lineColours(dark).values);
    }
    context.restore();
  }
}

interface Curve {
  first: number;
  last: number;
  mask: readonly Num[] | null;
  place: (t: number) => number;
  y: (v: number) => number;
  slot: number;
  selected: number | null;
}

function curve(context: CanvasRenderingContext2D, name: string, values: readonly Num[], c: Curve, colour: string): void {
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = name === "advantages" || name === "values" ? 2 : 1.5;
  const slots = [];
  for (let t = c.first; t < c.last; t++) if ((c.mask === null || c.mask[t]) && values[t] !== null) slots.push(t);
  if (name === "rewards") {
    const bar = Math.min(18, c.slot / 3);
    context.globalAlpha = 0.55;
    for (const t of slots) {
      const [from, end] = [c.y(0), c.y(values[t]!)];
      context.fillRect(c.place(t) - bar / 2, Math.min(from, end), bar, Math.max(1, Math.abs(end - from)));
    }
    context.globalAlpha = 1;
    return;
  }
  context.setLineDash(DASHES[name] ?? []);
  context.beginPath();
  slots.forEach((t, i) => (i ? context.lineTo(c.place(t), c.y(values[t]!)) : context.moveTo(c.place(t), c.y(values[t]!))));
  context.stroke();
  context.setLineDash([]);
  for (const t of slots) {
    context.beginPath();
    context.arc(c.place(t), c.y(values[t]!), t === c.selected ? 4.5 : 2.5, 0, 2 * Math.PI);
    context.fill();
  }
}

/** The value after the last token: 0 for a response that ended, an open point. */
function after(context: CanvasRenderingContext2D, value: number, x: number, y: (v: number) => number, colour: string) {
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(x, y(value), 3, 0, 2 * Math.PI);
  context.stroke();
}

function axis(
  context: CanvasRenderingContext2D,
  colour: Ink,
  low: number,
  high: number,
  y: (v: number) => number,
  width: number,
): void {
  context.textAlign = "right";
  context.font = FONT.replace("12px", "11px");
  const ticks = [0, low, high].filter((v, i, all) => i === 0 || all.slice(0, i).every((u) => Math.abs(y(u) - y(v)) > 11));
  for (const v of ticks) {
    context.strokeStyle = colour.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(LEFT - 6, Math.round(y(v)) + 0.5);
    context.lineTo(width, Math.round(y(v)) + 0.5);
    if (v !== 0) context.globalAlpha = 0.45;
    context.stroke();
    context.globalAlpha = 1;
    context.fillStyle = colour.muted;
    context.fillText(brief(v), LEFT - 10, y(v));
  }
}

/** A range that holds 0 and every number. */
export function range(values: readonly number[]): [number, number] {
  const low = values.reduce((a, b) => Math.min(a, b), 0);
  const high = values.reduce((a, b) => Math.max(a, b), 0);
  return high - low > 1e-12 ? [low, high] : [0, 1];
}

function fitted(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  let short = text;
  while (short.length > 1 && context.measureText(`${short}…`).width > room) short = short.slice(0, -1);
  return `${short}…`;
}

