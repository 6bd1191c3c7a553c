/** A column over all tokens of an answer in one line: its colours, and its curve; as wide as the answer is long. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { ink, prepare, useWidth } from "./canvas";
import { rgb } from "./colours";
import { usePrefs } from "./prefs";
import type { Num } from "./types";

const BAND = 8;
const CURVE = 26;
const HEIGHT = BAND + 3 + CURVE;

export interface GlanceProps {
  values: readonly Num[];
  mask: readonly Num[] | null;
  limit: number;
  /** On which side of 0 all numbers lie; 0 for both. */
  side: 1 | 0 | -1;
  /** Of the longest answer, which takes the whole width. */
  longest: number;
  selected: number | null;
  label: string;
  onSelect: (t: number) => void;
}

export function Glance({ values, mask, limit, side, longest, selected, label, onSelect }: GlanceProps) {
  const { dark } = usePrefs();
  const [ref, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const slot = width / Math.max(longest, 1);
  useLayoutEffect(() => {
    if (!canvas.current || width === 0) return;
    const context = prepare(canvas.current, width, HEIGHT);
    const colour = ink(dark);
    const zero = BAND + 3 + (CURVE * (1 + side)) / 2;
    const reach = side === 0 ? CURVE / 2 : CURVE;
    const y = (v: number) => zero - (limit > 0 ? (v / limit) * (reach - 1) : 0);
    context.fillStyle = colour.line;
    context.fillRect(0, Math.min(Math.round(zero), HEIGHT - 1), values.length * slot, 1);
    context.strokeStyle = colour.accent;
    context.lineWidth = 1.4;
    context.beginPath();
    let joined = false;
    values.forEach((value, t) => {
      if (value === null || (mask && !mask[t])) {
        joined = false;
        return;
      }
      context.fillStyle = `rgb(${rgb(value, limit, dark).join(" ")})`;
      context.fillRect(t * slot, 0, Math.max(slot, 1), BAND);
      if (joined) context.lineTo((t + 0.5) * slot, y(value));
      else context.moveTo((t + 0.5) * slot, y(value));
      joined = true;
    });
    context.stroke();
    if (selected !== null && selected < values.length) {
      context.fillStyle = colour.text;
      context.fillRect((selected + 0.5) * slot - 1, 0, 2, HEIGHT);
    }
  });
  return (
    <div class="glance" ref={ref}>
      <canvas ref={canvas} role="img" aria-label={label}
        onClick={(event) => {
          const t = Math.floor((event.clientX - event.currentTarget.getBoundingClientRect().left) / slot);
          if (t >= 0 && t < values.length) onSelect(t);
        }} />
    </div>
  );
}
