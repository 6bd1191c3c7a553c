/** The whole response at a glance: a line of colours, and under it its curves. A drag marks a range.
 *
 * However long the response is, it is as wide as the page; where tokens share a pixel their lowest and highest numbers
 * are drawn. The picture is drawn once, and what moves over it each time.
 */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useBrush } from "./brush";
import { FONT, ink, prepare, useWidth } from "./canvas";
import { tokenName, type Range } from "./chips";
import { lineColours, rgb } from "./colours";
import { GAP as GAP_COLUMN, MADE_OF, scaleOf } from "./derived";
import { brief, number } from "./numbers";
import { usePrefs } from "./prefs";
import { ACTION, DASHES, range as numbersRange, STATE, SYMBOLS } from "./strip";
import type { Columns, Num, Token } from "./types";

const LEFT = 58;
const RIGHT = 8;
const BAND = 14;
const PANEL = 46;
const GAP = 14;
const SHORT: Record<string, string> = { rollout_log_probs: "q", old_log_probs: "π", [GAP_COLUMN]: "g" };

export interface OverviewProps {
  tokens: readonly Token[];
  columns: Columns;
  column: string;
  limit: number;
  mask: readonly Num[] | null;
  selected: number | null;
  range: Range | null;
  onSelect: (t: number) => void;
  onRange: (range: Range | null) => void;
}

export function Overview({ tokens, columns, column, limit, mask, selected, range, onSelect, onRange }: OverviewProps) {
  const { say, dark } = usePrefs();
  const [ref, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [over, setOver] = useState<number | null>(null);
  const panels = useMemo(() => panelsOf(columns, column), [columns, column]);
  const slot = Math.max(0, width - LEFT - RIGHT) / Math.max(tokens.length, 1);
  const height = BAND + panels.length * (PANEL + GAP) + 4;
  const picture = useMemo(
    () => (width > LEFT ? drawn({ columns, column, limit, mask, count: tokens.length, slot, width, height, dark, panels }) : null),
    [columns, column, limit, mask, tokens, width, dark, panels],
  );

  useLayoutEffect(() => {
    if (!canvas.current || !picture) return;
    const context = prepare(canvas.current, width, height);
    const colour = ink(dark);
    context.drawImage(picture, 0, 0, width, height);
    const x = (t: number) => LEFT + t * slot;
    if (range) {
      context.fillStyle = colour.card;
      context.globalAlpha = 0.62;
      context.fillRect(LEFT, 0, x(range[0]) - LEFT, height);
      context.fillRect(x(range[1]), 0, width - RIGHT - x(range[1]), height);
      context.globalAlpha = 1;
      context.strokeStyle = colour.accent;
      context.strokeRect(x(range[0]) + 0.5, 0.5, Math.max(2, x(range[1]) - x(range[0])) - 1, height - 1);
    }
    for (const [t, ink, wide] of [[over, colour.muted, 1], [selected, colour.accent, 2]] as const) {
      if (t === null) continue;
      context.fillStyle = ink;
      context.fillRect(x(t) + slot / 2 - wide / 2, 0, wide, height);
    }
  });

  const at = (event: MouseEvent, near: boolean): number | null => {
    const t = Math.floor((event.clientX - canvas.current!.getBoundingClientRect().left - LEFT) / slot);
    if (near) return Math.min(Math.max(t, 0), tokens.length - 1);
    return t >= 0 && t < tokens.length ? t : null;
  };
  const brush = useBrush(at, onSelect, onRange);
  const shown = over ?? selected;
  return (
    <figure class="overview">
      <div class="overview-box" ref={ref} tabIndex={0} role="slider" aria-label={say("整条回答", "The whole response")}
        aria-valuemin={0} aria-valuemax={tokens.length - 1} aria-valuenow={selected ?? 0}
        aria-valuetext={selected === null ? undefined : `${selected} ${tokenName(tokens, selected)}`}>
        <canvas ref={canvas} {...brush}
          onPointerMove={(event) => {
            setOver(at(event, false));
            brush.onPointerMove(event);
          }}
          onPointerLeave={() => setOver(null)} />
      </div>
      <figcaption>
        {shown !== null && <Reading {...{ panels }} t={shown} tokens={tokens} columns={columns} />}
        {range ? (
          <span class="muted">
            {say(`选中 ${range[0]}–${range[1] - 1}`, `marked ${range[0]}–${range[1] - 1}`)}{" "}
            <button type="button" class="plain" data-clear="range" onClick={() => onRange(null)}>✕ Esc</button>
          </span>
        ) : (
          <span class="muted">{say("拖动选一段", "drag to mark a range")}</span>
        )}
      </figcaption>
    </figure>
  );
}

function Reading({ t, tokens, columns, panels }: { t: number; tokens: readonly Token[]; columns: Columns; panels: readonly Panel[] }) {
  const names = panels.flatMap((panel) => panel.names);
  return (
    <span class="reading">
      t = {t} <b>{tokenName(tokens, t)}</b>
      {names.map((name) => ` · ${SYMBOLS[name]} ${number(columns[name][t])}`).join("")}
    </span>
  );
}

interface Panel {
  names: readonly string[];
  low: number;
  high: number;
}

/** The curves; where sampler and trainer are compared, both log-probs over each other and their difference too. */
function panelsOf(columns: Columns, column: string): Panel[] {
  const compared = column === GAP_COLUMN || MADE_OF[GAP_COLUMN].includes(column) ? [MADE_OF[GAP_COLUMN], [GAP_COLUMN]] : [];
  return [STATE, ACTION, ...compared].flatMap((names) => {
    const there = names.filter((name) => columns[name]);
    if (!there.length) return [];
    const [low, high] = numbersRange(there.flatMap((name) => columns[name].filter((x): x is number => x !== null)));
    const least = Math.max(0, ...there.map((name) => scaleOf(name, [])));
    return [{ names: there, low: least ? Math.min(low, -least) : low, high: Math.max(high, least) }];
  });
}

interface Picture {
  columns: Columns;
  column: string;
  limit: number;
  mask: readonly Num[] | null;
  count: number;
  slot: number;
  width: number;
  height: number;
  dark: boolean;
  panels: readonly Panel[];
}

function drawn({ columns, column, limit, mask, count, slot, width, height, dark, panels }: Picture): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  const context = prepare(canvas, width, height);
  const colour = ink(dark);
  const chosen = (t: number) => mask === null || !!mask[t];
  hatch(context, mask, count, slot, height, colour.line);
  for (const [pixel, [low, high]] of pixels(columns[column] ?? [], count, slot, chosen)) {
    const [r, g, b] = rgb(Math.abs(low) > Math.abs(high) ? low : high, limit, dark);
    context.fillStyle = `rgb(${r} ${g} ${b})`;
    context.fillRect(LEFT + pixel, 0, Math.max(slot, 1), BAND - 2);
  }
  context.font = FONT.replace("12px", "11px");
  context.textBaseline = "middle";
  for (const [i, { names, low, high }] of panels.entries()) {
    const top = BAND + GAP / 2 + i * (PANEL + GAP);
    const y = (v: number) => top + PANEL - 4 - ((v - low) / (high - low)) * (PANEL - 8);
    context.strokeStyle = colour.line;
    context.strokeRect(LEFT, Math.round(y(0)) + 0.5, width - LEFT - RIGHT, 0);
    context.fillStyle = colour.muted;
    context.textAlign = "right";
    for (const v of [low, high]) if (Math.abs(y(v) - y(0)) > 9) context.fillText(brief(v), LEFT - 4, y(v));
    context.fillText("0", LEFT - 4, y(0));
    names.forEach((name, k) => {
      context.fillStyle = lineColours(dark)[name];
      context.textAlign = "left";
      context.fillText(SHORT[name] ?? SYMBOLS[name][0], k * 12, top + PANEL / 2);
    });
    for (const name of names) {
      const shift = STATE.some((one) => one === name) ? 0 : slot / 2;
      curve(context, name, pixels(columns[name], count, slot, chosen), (pixel) => LEFT + pixel + shift, y, slot, lineColours(dark)[name]);
    }
  }
  return canvas;
}

/** The lowest and highest number of the tokens that begin in each pixel. */
function pixels(values: readonly Num[], count: number, slot: number, chosen: (t: number) => boolean): [number, [number, number]][] {
  const found = new Map<number, [number, number]>();
  for (let t = 0; t < count; t++) {
    const value = values[t];
    if (value === null || value === undefined || !chosen(t)) continue;
    const pixel = slot >= 1 ? t * slot : Math.floor(t * slot);
    const known = found.get(pixel);
    if (known) found.set(pixel, [Math.min(known[0], value), Math.max(known[1], value)]);
    else found.set(pixel, [value, value]);
  }
  return [...found];
}

function curve(
  context: CanvasRenderingContext2D,
  name: string,
  points: readonly [number, [number, number]][],
  x: (pixel: number) => number,
  y: (v: number) => number,
  slot: number,
  colour: string,
): void {
  context.strokeStyle = context.fillStyle = colour;
  if (name === "rewards" || name === GAP_COLUMN) {
    for (const [pixel, [low, high]] of points) {
      const [top, bottom] = [y(Math.max(high, 0)), y(Math.min(low, 0))];
      if (bottom - top >= 1) context.fillRect(x(pixel) - 1, top, 2, bottom - top);
    }
    return;
  }
  context.lineWidth = name === "advantages" || name === "values" ? 1.6 : 1.1;
  context.setLineDash(points.length > 200 ? [] : (DASHES[name] ?? []));
  context.beginPath();
  points.forEach(([pixel, [low, high]], i) => {
    const joined = i > 0 && pixel - points[i - 1][0] < 1.5 * Math.max(slot, 1); // else something not chosen lies between
    if (joined) context.lineTo(x(pixel), y(low));
    else context.moveTo(x(pixel), y(low));
    if (high !== low) context.lineTo(x(pixel), y(high));
  });
  context.stroke();
  context.setLineDash([]);
}

/** Slanted lines over what the policy did not choose. */
function hatch(context: CanvasRenderingContext2D, mask: readonly Num[] | null, count: number, slot: number, height: number, colour: string): void {
  if (!mask) return;
  context.save();
  context.beginPath();
  for (let t = 0; t < count; t++) if (!mask[t]) context.rect(LEFT + t * slot, 0, Math.max(slot, 1), height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  for (let x = LEFT - height; x < LEFT + count * slot; x += 6) {
    context.moveTo(x, height);
    context.lineTo(x + height, 0);
  }
  context.stroke();
  context.restore();
}
