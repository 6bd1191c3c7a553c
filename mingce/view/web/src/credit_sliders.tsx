/** The settings of credit as sliders and menus, for the what-if page and the playground. */
import { ESTIMATORS, specOf, type Estimator } from "./credit";
import { usePrefs } from "./prefs";
import { Slider } from "./sliders";
import type { WhatIf, Whiten } from "./whatif";

export interface CreditSlidersProps {
  what: WhatIf;
  onChange: (what: WhatIf) => void;
  possible: (name: Estimator) => boolean;
  whitenings: Whiten[];
  hasKl: boolean;
}

export function CreditSliders({ what, onChange, possible, whitenings, hasKl }: CreditSlidersProps) {
  const { say } = usePrefs();
  const set = (change: Partial<WhatIf>) => onChange({ ...what, ...change });
  const { estimator } = what;
  const reads = (setting: string): boolean => !!specOf(estimator)?.settings.includes(setting);
  const WHITEN: Record<Whiten, string> = {
    none: say("不白化", "none"),
    step: say("本步的 μ、σ", "the step's μ, σ"),
    group: say("这一组的 μ、σ", "this group's μ, σ"),
  };
  return (
    <div class="sliders">
      {reads("gamma") && (
        <Slider label={say("折扣", "discount")} symbol="γ" value={what.gamma} max={1} step={0.01}
          onChange={(gamma) => set({ gamma })} />
      )}
      {reads("lam") && (
        <Slider label={say("信用传多远", "reach of credit")} symbol="λ" value={what.lam} max={1} step={0.01}
          onChange={(lam) => set({ lam })}
          marks={[
            { at: 0, text: say("λ=0：TD", "λ=0: TD") },
            { at: 0.95, text: "0.95" },
            { at: 1, text: say("λ=1：蒙特卡洛", "λ=1: Monte Carlo") },
          ]} />
      )}
      <Slider label={say("KL 的价钱", "price of the KL")} symbol="β" value={what.beta} max={1} step={0.005}
        disabled={!hasKl} onChange={(beta) => set({ beta })} />
      {reads("n") && (
        <Slider label={say("几步奖励", "rewards, then the critic")} symbol="n" value={what.n} min={1} max={32} step={1}
          onChange={(n) => set({ n })} />
      )}
      {reads("k") && (
        <Slider label={say("最后几个 token", "last tokens")} symbol="k" value={what.k} min={1} max={32} step={1}
          onChange={(k) => set({ k })} />
      )}
      <div class="choices">
        <label>
          {say("估计器", "Estimator")}
          <select data-setting="estimator" value={estimator}
            onChange={(event) => set({ estimator: event.currentTarget.value as Estimator })}>
            {ESTIMATORS.map((name) => (
              <option key={name} value={name} disabled={!possible(name)}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label>
          {say("白化", "Whitening")}
          <select data-setting="whiten" value={what.whiten}
            onChange={(event) => set({ whiten: event.currentTarget.value as Whiten })}>
            {whitenings.map((name) => (
              <option key={name} value={name}>
                {WHITEN[name]}
              </option>
            ))}
          </select>
        </label>
      </div>
    </div>
  );
}
