/** Sliders over the rollout, and the two ends of λ beside each other. */
import { useMemo } from "preact/hooks";
import { CompareMonteCarlo } from "./compare_mc";
import { CreditSliders } from "./credit_sliders";
import { usePrefs } from "./prefs";
import type { Rollout } from "./types";
import { groupOf, ownCode, possible, recorded, type WhatIf } from "./whatif";

export interface WhatIfPanelProps {
  rollout: Rollout;
  what: WhatIf;
  onChange: (what: WhatIf) => void;
}

export function WhatIfPanel({ rollout, what, onChange }: WhatIfPanelProps) {
  const { say } = usePrefs();
  const group = useMemo(() => groupOf(rollout, what.beta), [rollout, what.beta]);
  const before = recorded(rollout);
  const changed = (Object.keys(before) as (keyof WhatIf)[]).some((key) => before[key] !== what[key]);
  return (
    <section class="card whatif">
      <header class="whatif-head">
        <h2>{say("假如设置不同", "If the settings were others")}</h2>
        <button type="button" class="button" disabled={!changed} onClick={() => onChange(before)}>
          {say("回到记录值", "Back to what was recorded")}
        </button>
      </header>
      {ownCode(rollout) && (
        <p class="muted own-code">
          {say(
            `${ownCode(rollout)} 是自己写的代码，网页不能重算：一动滑块，就改用 ${what.estimator} 来算。`,
            `${ownCode(rollout)} is code of one's own, which the page cannot recompute: a slider moved means ${what.estimator} instead.`,
          )}
        </p>
      )}
      <CreditSliders
        what={what}
        onChange={onChange}
        possible={(name) => possible(rollout, name)}
        whitenings={["none", "step", "group"]}
        hasKl={!!rollout.columns.kl && !!rollout.columns.scores && rollout.settings.beta !== null}
      />
      {rollout.columns.values && group.mask.length > 1 && (
        <CompareMonteCarlo group={group} gamma={what.gamma} lam={what.lam} />
      )}
      {!!rollout.siblings_left_out && (
        <p class="muted">
          {say(`另有 ${rollout.siblings_left_out} 条同组回答太长，没有算进来。`, `${rollout.siblings_left_out} more samples of the group are too long to be counted in.`)}
        </p>
      )}
    </section>
  );
}
