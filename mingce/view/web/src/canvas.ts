/** A canvas that is sharp on any screen and is drawn again when its size or its drawing changes. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";

export function useWidth<E extends HTMLElement>(): [RefObject<E | null>, number] {
  const ref = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = ref.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    observer.observe(element);
    setWidth(Math.floor(element.clientWidth));
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const scale = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d")!;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

export type Ink = Record<"text" | "muted" | "line" | "accent" | "soft" | "card", string>;
const inks = new Map<boolean, Ink>();

/** The page's own colours, read from the style sheet so that they are written once; reading is slow, so once a theme. */
export function ink(dark: boolean): Ink {
  let found = inks.get(dark);
  if (!found) {
    const style = getComputedStyle(document.documentElement);
    const of = (name: string) => style.getPropertyValue(name).trim();
    found = { text: of("--text"), muted: of("--muted"), line: of("--line"), accent: of("--accent"), soft: of("--soft"), card: of("--card") };
    inks.set(dark, found);
  }
  return found;
}

export const FONT = '12px system-ui, "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif';
