/** Prose with {names} to fill in and formulae between backticks. */
import { Formula } from "./math";

export function Prose({ text, fill }: { text: string; fill: (name: string) => string | null }) {
  return (
    <>
      {text.split(/\n\n+/).map((paragraph, i) => (
        <p key={i} class="prose">
          {paragraph.split("`").map((part, j) =>
            j % 2 ? <Formula key={j} formula={part} fill={fill} /> : <Filled key={j} text={part} fill={fill} />,
          )}
        </p>
      ))}
    </>
  );
}

/** A sentence whose symbols, such as s_t and V(s_{t+1}), are set as such. */
export function WithSymbols({ text }: { text: string }) {
  return <>{text.split(/(?<!\w)([A-Za-zα-ω]_(?:\w|\{[^}]*\}))(?!\w)/).map((part, i) => (i % 2 ? <Formula key={i} formula={part} /> : part))}</>;
}

function Filled({ text, fill }: { text: string; fill: (name: string) => string | null }) {
  return (
    <>
      {text.split(/\{([a-zA-Z_]+)\}/).map((part, i) =>
        i % 2 ? (
          <span key={i} class="filled" data-name={part}>
            {fill(part) ?? "–"}
          </span>
        ) : (
          part
        ),
      )}
    </>
  );
}
