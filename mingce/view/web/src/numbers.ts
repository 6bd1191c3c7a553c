/** Numbers as people read them. */
import type { Num } from "./types";

const SUPERSCRIPTS: Record<string, string> = Object.fromEntries([..."-0123456789"].map((c, i) => [c, "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"[i]]));

/** Up to four decimals, a true minus sign, never −0; what would be lost in the decimals is shown as a power of ten. */
export function number(x: Num | undefined, decimals = 4): string {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size > 0 && (size < 0.5 * 10 ** -decimals || size >= 1e7)) return power(x);
  const shown = rounded(size, decimals);
  const trimmed = shown.includes(".") ? shown.replace(/\.?0+$/, "") : shown;
  return x < 0 && trimmed !== "0" ? `−${trimmed}` : trimmed;
}

/** A size of so many decimals by the rule of mingce/base/numbers.py: to three more first, then half up, so that what differs
 *  by less than float32 can hold reads the same. */
export function rounded(size: number, decimals: number): string {
  const fine = BigInt(size.toFixed(decimals + 3).replace(".", ""));
  const digits = String((fine + 500n) / 1000n).padStart(decimals + 1, "0");
  return decimals ? `${digits.slice(0, -decimals)}.${digits.slice(-decimals)}` : digits;
}

function power(x: number, decimals = 1): string {
  const [digits, exponent] = x.toExponential(decimals).split("e");
  const raised = [...exponent.replace("+", "")].map((c) => SUPERSCRIPTS[c]).join("");
  return `${(decimals === 1 ? digits.replace(/\.0$/, "") : digits).replace("-", "−")}×10${raised}`;
}

/** As an account says it, by the rule of mingce/base/numbers.py: with `powers` what is below 0.001 has a power of ten. */
export function said(x: Num | undefined, powers = true): string {
  if (x === null || x === undefined || !Number.isFinite(x)) return "—";
  const size = Math.abs(x);
  if (powers && size > 0 && size < 0.001) return power(x, 2);
  const shown = size < 1e21 ? rounded(size, 4) : String(BigInt(size));
  const trimmed = shown.includes(".") ? shown.replace(/\.?0+$/, "") : shown;
  return x < 0 && trimmed !== "0" ? `−${trimmed}` : trimmed;
}

/** With a sign, for things that are above or below 0. */
export function signed(x: Num | undefined, decimals = 4): string {
  const shown = number(x, decimals);
  return x !== null && x !== undefined && x > 0 ? `+${shown}` : shown;
}

/** For an axis or a tight place: three significant digits. */
export function brief(x: Num | undefined): string {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e5 || size < 1e-3) return power(x);
  return Number(x.toPrecision(3)).toString().replace("-", "−");
}

/** Numbers for arithmetic: what is missing is NaN, and shows as such wherever it spreads to. */
export const plain = (xs: readonly Num[]): number[] => xs.map((x) => x ?? NaN);

export const largest = (xs: readonly Num[]): number => xs.reduce<number>((m, x) => Math.max(m, Math.abs(x ?? 0)), 0);
