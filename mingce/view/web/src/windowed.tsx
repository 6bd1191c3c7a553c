/** A table of which only the rows in sight exist: rows of one height in a box that scrolls. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

const ROW = 34;
const EXTRA = 8;

export interface WindowedProps {
  count: number;
  head: ComponentChildren;
  row: (index: number) => ComponentChildren;
  /** A row to bring into sight when it changes. */
  show?: number | null;
  height?: number;
  label: string;
  /** Another one brings the table back to its top. */
  version?: string;
  /** Told which rows are in sight. */
  onSee?: (first: number, last: number) => void;
}

export function Windowed({ count, head, row, show = null, height = 420, label, version = "", onSee }: WindowedProps) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element || show === null) return;
    const y = show * ROW;
    if (y < element.scrollTop || y > element.scrollTop + element.clientHeight - 3 * ROW) {
      element.scrollTop = Math.max(0, y - element.clientHeight / 2);
    }
  }, [show]);
  const first = Math.max(0, Math.floor(top / ROW) - EXTRA);
  const last = Math.min(count, Math.ceil((top + height) / ROW) + EXTRA);
  useEffect(() => {
    if (box.current) box.current.scrollTop = 0;
  }, [version]);
  useEffect(() => onSee?.(first, last), [first, last]);
  return (
    <div
      class="table-box"
      ref={box}
      style={{ maxHeight: `${height}px` }}
      tabIndex={0}
      onKeyDown={walk}
      onScroll={(event) => setTop((event.currentTarget as HTMLElement).scrollTop)}
    >
      <table aria-label={label} aria-rowcount={count + 1}>
        <thead>{head}</thead>
        <tbody>
          <tr class="filler" style={{ height: `${first * ROW}px` }} aria-hidden="true" />
          {Array.from({ length: Math.max(0, last - first) }, (_, i) => row(first + i))}
          <tr class="filler" style={{ height: `${Math.max(0, count - last) * ROW}px` }} aria-hidden="true" />
        </tbody>
      </table>
    </div>
  );
}

/** ↑ and ↓ walk over the rows' links, from the table itself into it; Enter then opens one. */
function walk(event: KeyboardEvent): void {
  const down = event.key === "ArrowDown";
  if ((!down && event.key !== "ArrowUp") || event.altKey || event.ctrlKey || event.metaKey) return;
  const box = event.currentTarget as HTMLElement;
  const links = [...box.querySelectorAll<HTMLAnchorElement>("tbody tr td:first-child a")];
  const row = (event.target as HTMLElement).closest("tr");
  const top = box.querySelector("thead")!.getBoundingClientRect().bottom;
  const at = row ? links.findIndex((link) => row.contains(link)) : links.findIndex((link) => link.getBoundingClientRect().top >= top) - 1;
  const next = links[at + (down ? 1 : -1)];
  if (!next || (!row && !down)) return;
  event.preventDefault();
  next.focus({ preventScroll: true });
  next.closest("tr")!.scrollIntoView({ block: "nearest" });
}
