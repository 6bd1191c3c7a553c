/** What the audit of a step's ledger found, with links to the tokens. */
import { paths, useData } from "../api";
import { Await } from "../loading";
import { Formula } from "../math";
import { number } from "../numbers";
import { usePrefs } from "../prefs";
import { go, to } from "../route";
import type { Audit as AuditData, Finding, Place, Run } from "../types";

const WORDS: Record<Finding["severity"], [string, string, string]> = {
  bug: ["✗", "错误", "bug"],
  suspicious: ["?", "可疑", "suspicious"],
  convention: ["≡", "约定", "convention"],
  note: ["i", "说明", "note"],
};

export function Audit({ id, query }: { id: string; query: URLSearchParams }) {
  const { say } = usePrefs();
  const run = useData<Run>(paths.run(id));
  const steps = run.data?.ledger_steps ?? [];
  const asked = query.get("step");
  const step = asked !== null ? Number(asked) : (steps.at(-1) ?? null);
  const audit = useData<AuditData>(step === null ? null : paths.audit(id, step));
  return (
    <main>
      <header class="page-head">
        <h1>{say("审计", "Audit")}</h1>
        <label class="jump">
          {say("步", "step")}
          <select value={step ?? ""} onChange={(event) => go(to.audit(id, { step: event.currentTarget.value }))}>
            {steps.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        </label>
      </header>
      {step !== null && <Await of={audit}>{(data) => <Report id={id} step={step} data={data} />}</Await>}
      {run.data && steps.length === 0 && <p class="card notice">{say("没有账本可审。", "There is no ledger to audit.")}</p>}
    </main>
  );
}

function Report({ id, step, data }: { id: string; step: number; data: AuditData }) {
  const { say, pick } = usePrefs();
  const worst = data.counts.bug ? "bug" : data.counts.suspicious ? "suspicious" : "clean";
  return (
    <>
      <p class={`card verdict ${worst}`}>
        <span class="mark" aria-hidden="true">{worst === "clean" ? "✓" : WORDS[worst][0]}</span>
        {pick(data.verdict)}
      </p>
      {data.findings.map((finding, i) => (
        <FindingCard key={i} id={id} step={step} finding={finding} />
      ))}
      <details class="card">
        <summary>{say(`做过的检查：${data.checks.length} 项`, `${data.checks.length} checks that ran`)}</summary>
        <ul class="checks">
          {data.checks.map((check) => (
            <li key={check.name}>
              <code>{check.name}</code> {pick(check.title)}
            </li>
          ))}
        </ul>
      </details>
      {data.skipped.length > 0 && (
        <details class="card">
          <summary>{say(`没做的检查：${data.skipped.length} 项`, `${data.skipped.length} checks that could not run`)}</summary>
          <ul class="checks">
            {data.skipped.map((check) => (
              <li key={check.name}>
                <code>{check.name}</code> {pick(check.title)} <span class="muted">{say("缺", "lacks")} {check.missing.join(", ")}</span>
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function FindingCard({ id, step, finding }: { id: string; step: number; finding: Finding }) {
  const { say, pick } = usePrefs();
  const [mark, zh, en] = WORDS[finding.severity];
  return (
    <article class={`card finding ${finding.severity}`}>
      <h2>
        <span class="mark" aria-hidden="true">{mark}</span>
        <span>{pick(finding.title)}</span>
        <span class="muted severity">
          {say(zh, en)} · <code>{finding.code}</code> · {finding.column}
        </span>
      </h2>
      {finding.formula && <Formula formula={finding.formula} block />}
      {pick(finding.cause) && (
        <p>
          <b>{say("可能的原因：", "Likely cause: ")}</b>
          {pick(finding.cause)}
        </p>
      )}
      {pick(finding.change) && (
        <p>
          <b>{say("怎么改：", "What to change: ")}</b>
          {pick(finding.change)}
        </p>
      )}
      {finding.places.length > 0 && (
        <ul class="places">
          {finding.places.map((place, i) => (
            <li key={i}>
              <PlaceLink id={id} step={step} column={finding.column} place={place} />
              <span class="muted">{say("应为", "expected")}</span> {shown(place.expected)}
              <span class="muted">{say("实为", "found")}</span> {shown(place.found)}
            </li>
          ))}
        </ul>
      )}
    </article>
  );
}

const shown = (x: number | string | null): string => (typeof x === "string" ? x : number(x, 6));

function PlaceLink({ id, step, column, place }: { id: string; step: number; column: string; place: Place }) {
  const { say } = usePrefs();
  if (place.row === null) return <span>{say("整批", "the batch")}</span>;
  const name = place.token === null ? say(`第 ${place.row} 行`, `row ${place.row}`) : say(`第 ${place.row} 行，t = ${place.token}`, `row ${place.row}, t = ${place.token}`);
  return (
    <a href={to.rollout(id, step, place.row, { token: place.token, column })}>
      {name}
      {place.label ? ` ${place.label}` : ""}
    </a>
  );
}
