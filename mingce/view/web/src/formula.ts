/** Formulae in the plain notation of the column table, read into a tree that math.tsx sets as MathML.
 *
 *   δ_t = r_t + γ·V(s_{t+1}) − V(s_t)        Â_t = (A_t − μ)/√(σ² + 10⁻⁸)        {reward}: a number to fill in
 */

export type Node =
  | { kind: "name" | "word" | "number" | "operator" | "text"; text: string }
  | { kind: "slot"; name: string }
  | { kind: "row"; items: Node[] }
  | { kind: "fenced"; items: Node[]; open: string; close: string }
  | { kind: "root"; body: Node }
  | { kind: "fraction"; over: Node; under: Node }
  | { kind: "script"; base: Node; sub: Node | null; sup: Node | null };

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ";
const LEVEL = "0123456789−+n";
const TOKEN = new RegExp(
  [
    "(?<space>\\s+)",
    "(?<slot>\\{[a-z_]+\\})",
    "(?<number>\\d+(?:\\.\\d+)?)",
    "(?<word>[A-Za-z]{2,}(?:_(?=[a-z]{2})[a-z]+)*|[\\u4e00-\\u9fff，。；：、（）]+)",
    "(?<name>\\p{L}['′]?)",
    `(?<raised>[${RAISED}]+)`,
    "(?<other>.)",
  ].join("|"),
  "uy",
);

interface Piece {
  type: string;
  text: string;
  spaced: boolean;
}

function pieces(source: string): Piece[] {
  const found: Piece[] = [];
  let spaced = false;
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(source); match; match = TOKEN.exec(source)) {
    const [type, text] = Object.entries(match.groups!).find(([, value]) => value !== undefined)!;
    const sign = found.at(-1);
    if (type === "number" && !spaced && sign && isSign(sign, found.at(-2))) found[found.length - 1] = { type, text: `−${text}`, spaced: sign.spaced };
    else if (type !== "space") found.push({ type, text: text!, spaced });
    spaced = type === "space";
  }
  return found;
}

/** Whether a minus belongs to the number behind it: one with nothing before it to be taken from. */
function isSign(minus: Piece, before: Piece | undefined): boolean {
  if (minus.type !== "other" || (minus.text !== "−" && minus.text !== "-")) return false;
  return !before || (before.type === "other" && "=+−·×/([{,<>≤≥≈→;:".includes(before.text));
}

/** A symbol where MathML cannot stand, as in a menu: V(s_t) as V(sₜ). */
export const inline = (symbol: string): string => symbol.replace(/_t/g, "ₜ");

const CLOSING: Record<string, string> = { "(": ")", "[": "]", "{": "}" };

export function read(source: string): Node {
  const input = pieces(source);
  let at = 0;

  function row(until: string | null): Node[] {
    const items: Node[] = [];
    while (at < input.length && !(input[at].type === "other" && input[at].text === until)) {
      const piece = input[at];
      const before = items.at(-1);
      if (piece.type === "other" && piece.text === "/" && before && before.kind !== "operator") {
        at += 1;
        if (at < input.length) items.push({ kind: "fraction", over: bare(items.pop()!), under: bare(scripted()) });
        continue;
      }
      if (before && piece.spaced && apart(before, piece)) {
        items.push({ kind: "text", text: "\u00a0" });
      }
      items.push(scripted());
    }
    return items;
  }

  /** An atom with what hangs on it: subscripts, superscripts, and the argument of a function written against it. */
  function scripted(): Node {
    let node = atom();
    for (let more = true; more; ) {
      more = false;
      let sub: Node | null = null;
      let sup: Node | null = null;
      for (let next = input[at]; next && at < input.length; next = input[at]) {
        if (next.type === "other" && next.text === "_" && !sub) {
          at += 1;
          sub = bare(atom());
        } else if (next.type === "other" && next.text === "^" && !sup) {
          at += 1;
          sup = bare(atom());
        } else if (next.type === "raised" && !sup) {
          at += 1;
          sup = { kind: "number", text: [...next.text].map((c) => LEVEL[RAISED.indexOf(c)]).join("") };
        } else break;
      }
      if (sub || sup) node = { kind: "script", base: node, sub, sup };
      const next = input[at];
      const callable = node.kind === "name" || node.kind === "word" || node.kind === "script";
      if (next && !next.spaced && next.text === "(" && callable) {
        node = { kind: "row", items: [node, atom()] };
        more = true;
      }
    }
    return node;
  }

  function atom(): Node {
    const piece = input[at++];
    if (!piece) return { kind: "text", text: "" };
    if (piece.type === "slot") return { kind: "slot", name: piece.text.slice(1, -1) };
    if (piece.type === "raised") return { kind: "text", text: piece.text };
    if (piece.type !== "other") return { kind: piece.type as "name" | "word" | "number", text: piece.text };
    if (piece.text === "√") return { kind: "root", body: bare(atom()) };
    const close = CLOSING[piece.text];
    if (close) {
      const items = row(close);
      at += 1;
      return piece.text === "{" ? { kind: "row", items } : { kind: "fenced", items, open: piece.text, close };
    }
    return { kind: "operator", text: piece.text === "-" ? "−" : piece.text };
  }

  const items: Node[] = [];
  while (at < input.length) {
    items.push(...row(null));
    at += 1;
  }
  return { kind: "row", items };
}

/** Whether a space in the source is one on the page: around words and before a parenthesis, not around operators. */
function apart(before: Node, piece: Piece): boolean {
  if (before.kind === "operator") return piece.type === "word" && ";:".includes(before.text);
  return before.kind === "word" ? piece.type !== "other" : piece.type === "word" || piece.text === "(";
}

/** Without its parentheses, where the layout already groups. */
function bare(node: Node): Node {
  return node.kind === "fenced" && node.open === "(" ? { kind: "row", items: node.items } : node;
}
