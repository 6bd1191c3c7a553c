/** What a seed claims, what is right, and what the page computes, beside each other. */
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import type { Columns, SeedExample } from "./types";

const OURS: Record<string, string> = { monte_carlo_returns: "returns", kl_k1: "kl" };

type Told = string | Record<string, number | number[]> | undefined;

export function Errata({ example, columns, bare = false }: { example: SeedExample; columns: Columns | null; bare?: boolean }) {
  const { say } = usePrefs();
  const { seed_claims, right, expect, why, note } = example;
  if (!seed_claims && !right && !expect) return null;
  const sides: [string, string, Told][] = [
    ["claims", say("原文所写", "the seed says"), seed_claims],
    ["right", say("正确", "right"), right ?? expect],
  ];
  const names = [...new Set([right, expect, seed_claims].flatMap((told) => (told && typeof told === "object" ? Object.keys(told) : [])))];
  const computed = Object.fromEntries(
    names.flatMap((name) => {
      const column = columns?.[OURS[name] ?? name];
      return column ? [[name, column.map((x) => x ?? NaN)]] : [];
    }),
  );
  if (Object.keys(computed).length) sides.push(["ours", say("本页算得", "computed here"), computed]);
  return (
    <section class={bare ? "errata" : "card errata"} data-errata>
      {!bare && <h2>{seed_claims ? say("勘误", "Erratum") : say("与原文核对", "Checked against the seed")}</h2>}
      <div class="errata-sides">
        {sides.map(([key, head, told]) =>
          told === undefined ? null : (
            <div key={key} class={`errata-side ${key}`}>
              <h3>{head}</h3>
              <Claim told={told} />
            </div>
          ),
        )}
      </div>
      {(why ?? note) && <p class="muted">{why ?? note}</p>}
      <p class="muted">{example.seed}</p>
    </section>
  );
}

function Claim({ told }: { told: Exclude<Told, undefined> }) {
  if (typeof told === "string") return <p>{told}</p>;
  return (
    <dl>
      {Object.entries(told).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{(Array.isArray(value) ? value : [value]).map((x) => number(x)).join("  ")}</dd>
        </div>
      ))}
    </dl>
  );
}
