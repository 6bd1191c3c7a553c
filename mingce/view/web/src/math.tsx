/** Formulae as MathML, which every current browser sets by itself. */
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { read, type Node } from "./formula";
import { FENCED } from "./specs.generated";

type Fill = (name: string) => string | null;

function set(node: Node, fill: Fill): preact.ComponentChild {
  switch (node.kind) {
    case "name":
      return <mi>{node.text}</mi>;
    case "word":
      return <mi mathvariant="normal">{node.text}</mi>;
    case "number":
      return <mn>{node.text}</mn>;
    case "text":
      return <mtext>{node.text}</mtext>;
    case "operator":
      return <mo>{node.text}</mo>;
    case "slot":
      return slot(node.name, fill);
    case "row":
      return <mrow>{laid(node.items, fill)}</mrow>;
    case "fenced":
      return (
        <mrow>
          <mo>{node.open}</mo>
          {laid(node.items, fill)}
          <mo>{node.close}</mo>
        </mrow>
      );
    case "root":
      return <msqrt>{set(node.body, fill)}</msqrt>;
    case "fraction":
      return (
        <mfrac>
          {set(node.over, fill)}
          {set(node.under, fill)}
        </mfrac>
      );
    case "script":
      if (node.sub && node.sup) {
        return (
          <msubsup>
            {set(node.base, fill)}
            {set(node.sub, fill)}
            {set(node.sup, fill)}
          </msubsup>
        );
      }
      return node.sub ? (
        <msub>
          {set(node.base, fill)}
          {set(node.sub, fill)}
        </msub>
      ) : (
        <msup>
          {set(node.base, fill)}
          {set(node.sup!, fill)}
        </msup>
      );
  }
}

/** What fills a slot; where nothing does, {t} was a group after all and its letters are a name. */
function slot(name: string, fill: Fill): preact.ComponentChild {
  const text = fill(name);
  if (text === null) return <mi>{name}</mi>;
  return /^−?[\d.]/.test(text) ? <mn data-name={name}>{text}</mn> : <mtext data-name={name}>{text}</mtext>;
}

/** A negative number behind an operator stands in parentheses. */
function laid(items: readonly Node[], fill: Fill): preact.ComponentChild[] {
  return items.map((node, i) => {
    const before = items[i - 1];
    const behind = before?.kind === "operator" && FENCED.includes(before.text);
    return behind && node.kind === "slot" && fill(node.name)?.startsWith("−") ? (
      <mrow>
        <mo>(</mo>
        {slot(node.name, fill)}
        <mo>)</mo>
      </mrow>
    ) : (
      set(node, fill)
    );
  });
}

export interface MathProps {
  formula: string;
  /** Fills {names} in the formula. */
  fill?: Fill;
  block?: boolean;
}

const LONG = 48; // characters that any screen has room for
const SMALLEST = 0.7;

/** A block is set in pieces, one from each equals sign on, so that a long one goes on in the next line; a piece that is
 * wider than the line all the same is set smaller. */
export function Formula({ formula, fill = () => null, block = false }: MathProps) {
  const pieces = useMemo(() => (block ? formula.split(/(?= = )/) : [formula]).map((piece) => read(piece.trim())), [formula, block]);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!box.current || formula.length < LONG) return;
    box.current.style.fontSize = "";
    const { scrollWidth, clientWidth } = box.current;
    if (scrollWidth > clientWidth) box.current.style.fontSize = `${Math.max(SMALLEST, (0.98 * clientWidth) / scrollWidth)}em`;
  });
  if (!/[=·√Σ_^−+/{]/.test(formula)) return <span>{formula}</span>; // a sentence, not a formula
  if (!block) return <math class="formula">{set(pieces[0], fill)}</math>;
  return (
    <div class="formula block" ref={box}>
      {pieces.map((piece, k) => (
        <>
          {k > 0 && <wbr />}
          <math key={k}>{set(piece, fill)}</math>
        </>
      ))}
    </div>
  );
}
