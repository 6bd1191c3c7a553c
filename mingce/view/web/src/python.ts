/** What the generated definitions need of Python: loops, slices and sums as it has them. */

export const list = <T>(items: Iterable<T>): T[] => [...items];
export const any = (items: Iterable<unknown>): boolean => list(items).some(Boolean);
export const reversed = <T>(items: readonly T[]): T[] => [...items].reverse();
export const repeat = <T>(items: readonly T[], times: number): T[] => range(times).flatMap(() => items);
export const concat = <T>(first: readonly T[], second: readonly T[]): T[] => [...first, ...second];
export const slice = <T>(items: readonly T[], from?: number, to?: number): T[] => items.slice(from ?? 0, to);
export const enumerate = <T>(items: Iterable<T>): [number, T][] => list(items).map((item, i) => [i, item]);
export const sum = (items: Iterable<number>): number => list(items).reduce((so_far, x) => so_far + x, 0);

export function range(from: number, to?: number): number[] {
  const [first, end] = to === undefined ? [0, from] : [from, to];
  return Array.from({ length: Math.max(0, end - first) }, (_, i) => first + i);
}

/** As far as the shortest reaches. */
export function zip(...columns: (readonly unknown[])[]): unknown[][] {
  return range(Math.min(...columns.map((column) => column.length))).map((i) => columns.map((column) => column[i]));
}

/** The sum, rounded once (Shewchuk): what was lost at each addition is kept as a smaller part. */
export function fsum(items: Iterable<number>): number {
  let parts: number[] = [];
  for (let x of items) {
    if (!Number.isFinite(x)) return sum(items);
    const kept: number[] = [];
    for (let y of parts) {
      if (Math.abs(x) < Math.abs(y)) [x, y] = [y, x];
      const high = x + y;
      const low = y - (high - x);
      if (low !== 0) kept.push(low);
      x = high;
    }
    parts = [...kept, x];
  }
  return roundedOnce(parts);
}

/** The parts, from the smallest up, added to one number with a single rounding, halves to even. */
function roundedOnce(parts: number[]): number {
  if (parts.length === 0) return 0;
  let high = parts.pop()!;
  let low = 0;
  while (parts.length > 0) {
    const x = high;
    const y = parts.pop()!;
    high = x + y;
    low = y - (high - x);
    if (low !== 0) break;
  }
  const next = parts.at(-1);
  if (next !== undefined && ((low < 0 && next < 0) || (low > 0 && next > 0))) {
    const twice = low * 2;
    if (twice === high + twice - high) high += twice;
  }
  return high;
}
