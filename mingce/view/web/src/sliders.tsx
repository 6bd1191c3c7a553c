/** A slider with its number, which can be typed as well. */
export interface SliderProps {
  label: string;
  symbol: string;
  value: number;
  min?: number;
  max: number;
  step: number;
  onChange: (value: number) => void;
  /** Values with a name: where the slider means something special. */
  marks?: { at: number; text: string }[];
  disabled?: boolean;
}

export function Slider({ label, symbol, value, min = 0, max, step, onChange, marks = [], disabled }: SliderProps) {
  const change = (event: Event) => {
    const typed = Number((event.currentTarget as HTMLInputElement).value);
    if (Number.isFinite(typed)) onChange(Math.min(max, Math.max(min, typed)));
  };
  return (
    <div class={disabled ? "slider off" : "slider"}>
      <label>
        <span class="slider-name">
          <b>{symbol}</b> <span class="muted">{label}</span>
        </span>
        <input
          type="range"
          data-setting={symbol}
          {...{ min, max, step, value, disabled }}
          onInput={change}
          aria-label={`${symbol} ${label}`}
        />
      </label>
      <input
        class="slider-number"
        type="number"
        {...{ min, max, step, value, disabled }}
        onChange={change}
        aria-label={`${symbol} ${label}`}
      />
      {marks.length > 0 && (
        <div class="marks">
          {marks.map(({ at, text }) => (
            <button key={at} type="button" disabled={disabled} aria-pressed={value === at} onClick={() => onChange(at)}>
              {text}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
