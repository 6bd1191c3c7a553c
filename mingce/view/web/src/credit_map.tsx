/** The T × T picture of (γλ)^l δ_{t+l}: which later surprise (across) pays which earlier token (down). */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { FONT, ink, prepare, useWidth } from "./canvas";
import { tokenName, type Range } from "./chips";
import { chosen, creditTerm, effectiveLambda, specOf } from "./credit";
import { rgb } from "./colours";
import type { Book } from "./facts";
import { Legend } from "./legend";
import { Formula } from "./math";
import { number, plain } from "./numbers";
import { usePrefs } from "./prefs";

const MARGIN = 64; // for the names
const EDGE = 4; // without them
const FINEST = 640;
const WIDEST = 160; // tokens in sight at once: of more, credit is a line along the diagonal
const BEFORE = 40; // of them before the selected one; what pays it comes after
const TYPICAL = 0.98; // of the terms keep to the colours' scale; a single score would make all others pale
const LABELS = 44; // beyond this many tokens their names would not fit

export interface CreditMapProps {
  book: Book;
  selected: number | null;
  range: Range | null;
  onSelect: (t: number) => void;
}

export function CreditMap({ book, selected, range, onSelect }: CreditMapProps) {
  const { say, dark } = usePrefs();
  const [ref, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [over, setOver] = useState<[number, number] | null>(null);
  const { tokens } = book.rollout;
  const all = useMemo(() => chosen(plain(book.columns.response_mask)), [book]);
  const [whole, setWhole] = useState(false);
  const [first, last] = inSight(all, selected, range, whole);
  const slots = useMemo(() => all.slice(first, last), [all, first, last]);
  const lam = book.settings.estimator === null ? book.settings.lam : effectiveLambda(book.settings.estimator, book.settings.lam ?? 1);
  const deltas = book.columns.deltas && slots.map((t) => book.columns.deltas[t] ?? 0);
  const decay = (book.settings.gamma ?? 1) * (lam ?? 1);
  const reach = specOf(book.settings.estimator)?.kind === "window" ? (book.settings.n ?? 5) : Infinity;
  const limit = deltas ? typical(deltas) : 0;
  const margin = slots.length <= LABELS ? MARGIN : EDGE;
  const side = Math.max(160, Math.min(width - margin - 4, 640));
  const cell = slots.length ? side / slots.length : side;

  const image = useMemo(
    () => (deltas?.length ? mapImage(deltas, decay, reach, limit, dark) : null),
    [book, slots, decay, reach, limit, dark],
  );

  useLayoutEffect(() => {
    if (!canvas.current || !deltas || !image || width === 0) return;
    const context = prepare(canvas.current, side + margin, side + margin);
    const colour = ink(dark);
    context.imageSmoothingEnabled = false;
    context.drawImage(image, margin, margin, side, side);
    if (cell > 10) rule(context, colour.line, slots.length, cell, margin);
    holes(context, colour.text, slots, cell, margin);
    context.font = FONT;
    context.fillStyle = colour.muted;
    if (slots.length <= LABELS) {
      context.textBaseline = "middle";
      slots.forEach((t, i) => {
        const name = tokenName(tokens, t).slice(0, 6);
        context.textAlign = "right";
        context.fillText(name, margin - 8, margin + (i + 0.5) * cell);
        context.save();
        context.translate(margin + (i + 0.5) * cell, margin - 8);
        context.rotate(-Math.PI / 4);
        context.textAlign = "left";
        context.fillText(name, 0, 0);
        context.restore();
      });
    }
    const place = selected === null ? -1 : slots.indexOf(selected);
    if (place >= 0) {
      context.strokeStyle = colour.accent;
      context.lineWidth = 2;
      context.strokeRect(margin + place * cell, margin + place * cell, side - place * cell, Math.max(cell, 2));
    }
    if (over) {
      context.strokeStyle = colour.text;
      context.lineWidth = 1.5;
      context.strokeRect(margin + over[1] * cell, margin + over[0] * cell, Math.max(cell, 3), Math.max(cell, 3));
    }
  });

  const locate = (event: MouseEvent): [number, number] | null => {
    const box = canvas.current!.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - margin) / cell);
    const column = Math.floor((event.clientX - box.left - margin) / cell);
    return row >= 0 && column >= row && column < slots.length ? [row, column] : null;
  };

  if (!deltas || lam === null) {
    return (
      <p class="card notice">
        {say(
          "这个估计器不由 TD 误差组成，没有信用图；可在「假如」里改用 gae。",
          "This estimator is not a sum of TD errors, so there is no credit map; try gae under “What if”.",
        )}
      </p>
    );
  }
  const shown = over ?? (selected !== null && slots.includes(selected) ? [slots.indexOf(selected), slots.indexOf(selected)] : null);
  return (
    <section class="card credit-map">
      <p class="lead">
        {say("第 t 行的和就是 Aₜ：后面每一次意外 δ 按 (γλ)ˡ 打折，付给前面的 token。", "Row t adds up to Aₜ: every later surprise δ, discounted by (γλ)ˡ, pays the earlier token.")}{" "}
        <Formula formula="A_t = Σ_l (γλ)^l·δ_{t+l}" />
        {slots.some((_, i) => isHole(slots, i)) && (
          <span class="holes-note">
            {say(" 虚线处是环境给的话：l 不数它们，信用照样穿过。", " At the dashed lines something was told: l does not count it, and credit goes across.")}
          </span>
        )}
      </p>
      {(all.length > WIDEST || slots.length < all.length) && (
        <p class="muted hint">
          {slots.length < all.length
            ? say(`第 ${slots[0]}–${slots.at(-1)} 个 token，共 ${tokens.length} 个；选别的 token，或在上面的曲线上拖出一段。`,
                  `Tokens ${slots[0]}–${slots.at(-1)} of ${tokens.length}; choose another token, or drag over the curves above.`)
            : say(`全部 ${tokens.length} 个 token。`, `All ${tokens.length} tokens.`)}{" "}
          {!range && (
            <button type="button" class="plain link" aria-pressed={whole} onClick={() => setWhole(!whole)}>
              {whole ? say("只看所选的附近", "Only around the selected") : say("整条回答", "The whole response")}
            </button>
          )}
        </p>
      )}
      <div class="map-box" ref={ref}>
        <canvas
          ref={canvas}
          role="img"
          aria-label={say("信用图", "Credit map")}
          onMouseMove={(event) => setOver(locate(event))}
          onMouseLeave={() => setOver(null)}
          onClick={(event) => {
            const found = locate(event);
            if (found) onSelect(slots[found[0]]);
          }}
        />
      </div>
      <p class="map-term" aria-live="polite">
        {shown ? <Term {...{ book, slots, deltas, decay, reach }} earlier={shown[0]} later={shown[1]} /> : say("把指针移到格子上。", "Point at a cell.")}
      </p>
      <Legend limit={limit} symbol="(γλ)ˡδ" />
    </section>
  );
}

interface TermProps {
  book: Book;
  slots: number[];
  deltas: number[];
  decay: number;
  reach: number;
  earlier: number;
  later: number;
}

function Term({ book, slots, deltas, decay, reach, earlier, later }: TermProps) {
  const { say } = usePrefs();
  const { tokens } = book.rollout;
  const term = creditTerm(deltas, earlier, later, decay, reach);
  const share = book.columns.advantages?.[slots[earlier]] ?? null;
  const numbers: Record<string, string> = {
    decay: number(decay),
    l: String(later - earlier),
    delta: number(deltas[later]),
    term: number(term),
  };
  return (
    <>
      <b>{tokenName(tokens, slots[later])}</b> (t+l = {slots[later]}) {say("的意外付给", "pays")}{" "}
      <b>{tokenName(tokens, slots[earlier])}</b> (t = {slots[earlier]}){say("：", ": ")}
      <Formula formula="{decay}^{l} · {delta} = {term}" fill={(name) => numbers[name]} />
      <span class="muted">
        {say("，Aₜ 共 ", ", of Aₜ = ")}
        {number(share)}
      </span>
    </>
  );
}

/** Which of the chosen tokens are drawn: those of a range, else of a long response those around the selected one. */
function inSight(all: readonly number[], selected: number | null, range: Range | null, whole: boolean): [number, number] {
  if (range) {
    const first = all.findIndex((t) => t >= range[0]);
    const last = all.findIndex((t) => t >= range[1]);
    return first < 0 ? [0, all.length] : [first, last < 0 ? all.length : Math.max(last, first + 1)];
  }
  if (whole || all.length <= WIDEST) return [0, all.length];
  const at = Math.max(0, all.findIndex((t) => t >= (selected ?? 0)));
  const first = Math.min(Math.max(0, at - BEFORE), all.length - WIDEST);
  return [first, first + WIDEST];
}

/** The size of nearly all of the numbers, of few the largest. */
function typical(numbers: readonly number[]): number {
  const sizes = numbers.map(Math.abs).sort((a, b) => a - b);
  const most = sizes.at(-1) ?? 0;
  return sizes.length > LABELS ? sizes[Math.floor(TYPICAL * (sizes.length - 1))] || most : most;
}

/** Where something lies between two tokens that the policy did not choose. */
const isHole = (slots: readonly number[], i: number): boolean => i > 0 && slots[i] !== slots[i - 1] + 1;

/** Dashed lines at the holes: credit crosses them as if nothing lay between. */
function holes(context: CanvasRenderingContext2D, colour: string, slots: readonly number[], cell: number, margin: number): void {
  context.save();
  context.strokeStyle = colour;
  context.lineWidth = 1.2;
  context.setLineDash([5, 4]);
  context.beginPath();
  slots.forEach((_, i) => {
    if (!isHole(slots, i)) return;
    context.moveTo(margin + i * cell, margin - 4);
    context.lineTo(margin + i * cell, margin + i * cell);
    context.lineTo(margin + slots.length * cell, margin + i * cell);
  });
  context.stroke();
  context.restore();
}

/** Lines between the cells of the upper triangle. */
function rule(context: CanvasRenderingContext2D, colour: string, count: number, cell: number, margin: number): void {
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let i = 0; i < count; i++) {
    context.moveTo(margin + i * cell, margin + i * cell);
    context.lineTo(margin + count * cell, margin + i * cell);
    context.moveTo(margin + (i + 1) * cell, margin);
    context.lineTo(margin + (i + 1) * cell, margin + (i + 1) * cell);
  }
  context.stroke();
}

/** One pixel a cell, or where cells are smaller than a pixel of the page the largest of those that share it. */
function mapImage(deltas: number[], decay: number, reach: number, limit: number, dark: boolean): HTMLCanvasElement {
  const count = deltas.length;
  const grid = Math.min(count, FINEST);
  const strongest = new Float64Array(grid * grid);
  const to = (i: number) => Math.floor((i * grid) / count);
  for (let t = 0; t < count; t++) {
    let weight = 1;
    for (let j = t; j < count && j - t < reach; j++, weight *= decay) {
      const at = to(t) * grid + to(j);
      const term = weight * deltas[j];
      if (Math.abs(term) > Math.abs(strongest[at])) strongest[at] = term;
    }
  }
  const image = new ImageData(grid, grid);
  for (let row = 0; row < grid; row++) {
    for (let column = row; column < grid; column++) {
      const at = row * grid + column;
      image.data.set([...rgb(strongest[at], limit, dark), 255], 4 * at);
    }
  }
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = grid;
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  return canvas;
}
