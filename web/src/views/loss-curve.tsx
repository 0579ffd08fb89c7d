// The loss over the steps of a training, as it was logged; snapshots stand on it as decorations. Both axes are logarithmic, for a
// training does max in its first steps, and goes on to gain a little for long.
import { useRef } from "preact/hooks";
import { source, type History, type ModelInfo } from "../api";
import { toCss } from "../color";
import { latestValue, useAsync, usePalette, useWidth } from "../hooks";
import { save } from "../matrix/export";
import { FONT } from "../matrix/paint";
import { formatNumber } from "../format";
import { logTicks } from "../math";
import { EmptyState, ErrorMessage, Loading } from "../ui";

interface Props {
  model: ModelInfo;
  snapshots: readonly number[];
  chosen: number; // −1: the finished model
  onChoose: (step: number) => void;
}

const HEIGHT = 260;
const LEFT = 40;
const BOTTOM = 28;
const TOP = 12;

export function LossCurve({ model, snapshots, chosen, onChoose }: Props) {
  const loaded = useAsync(() => source.history(model.name), [model.name]);
  const history = latestValue(loaded);
  return (
    <>
      <div class="section-header">
        <div>
          <h2>The loss</h2>
          <p class="muted small">Cross-entropy a token, in nats, as the training logged it; rings: on the validation set.</p>
        </div>
      </div>
      {loaded.state === "failed" ? <ErrorMessage error={loaded.error} /> : null}
      {!history ? (
        loaded.state === "failed" ? null : <Loading what="the log" />
      ) : history.steps.length > 1 ? (
        <Curve {...{ history, snapshots, chosen, onChoose }} name={model.name} />
      ) : (
        <EmptyState>
          <p>This model came without the log of its training (log.jsonl).</p>
        </EmptyState>
      )}
    </>
  );
}

interface CurveProps extends Omit<Props, "model"> {
  history: History;
  name: string;
}

function Curve({ history, snapshots, chosen, onChoose, name }: CurveProps) {
  const [place, width] = useWidth<HTMLElement>();
  const svg = useRef<SVGSVGElement>(null);
  const palette = usePalette();
  const { steps, validations } = history;
  const last = Math.max(steps[steps.length - 1].step, ...snapshots);
  const all = [...steps, ...validations].map(({ loss }) => loss).filter((loss) => loss > 0);
  const [min, max] = [Math.min(...all), Math.max(...all)];
  const wide = Math.max(width, 240);
  const x = (step: number): number => LEFT + (Math.log(Math.max(1, step)) / Math.log(Math.max(2, last))) * (wide - LEFT - 14);
  const y = (loss: number): number => TOP + (Math.log(max / Math.max(loss, min)) / Math.log(Math.max(max / min, 1.01))) * (HEIGHT - TOP - BOTTOM);
  const path = steps.map(({ step, loss }, i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(loss).toFixed(1)}`).join("");
  const nearest = (step: number): { step: number; loss: number } =>
    steps.reduce((best, one) => (Math.abs(one.step - step) < Math.abs(best.step - step) ? one : best));
  const decorations = [...snapshots.map((step) => ({ step, loss: nearest(step).loss })), { step: last, loss: nearest(last).loss }];
  const here = chosen < 0 ? decorations[decorations.length - 1] : (decorations.find(({ step }) => step === chosen) ?? decorations[decorations.length - 1]);
  const tens = Array.from({ length: Math.floor(Math.log10(last)) + 1 }, (_, n) => 10 ** n);
  const linearTicks = logTicks(min, max);
  const [ink, faint, accent] = [toCss(palette.text), toCss(palette.muted), toCss(palette.accent)];
  const logged = nearest(here.step);
  const saveSvg = (): void => {
    const copy = svg.current!.cloneNode(true) as SVGSVGElement;
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    save(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }), `${name}-loss.svg`);
  };
  const saveCsv = (): void => {
    const lines = [
      ...steps.map(({ step, loss }) => `training,${step},${loss}`),
      ...validations.map(({ step, loss }) => `validation,${step},${loss}`),
    ];
    save(new Blob([`set,step,loss\n${lines.join("\n")}\n`], { type: "text/csv" }), `${name}-loss.csv`);
  };
  return (
    <figure class="matrix loss-curve" ref={place}>
      <figcaption>
        <span>
          {chosen < 0 ? "finished" : `step ${here.step.toLocaleString("en")}`}: loss <b data-loss={logged.loss}>{formatNumber(logged.loss, 3)}</b>
          {chosen >= 0 && logged.step === here.step ? "" : `, as logged at step ${logged.step.toLocaleString("en")}`}
        </span>
        <span class="toolbar">
          <button title="save as SVG" onClick={saveSvg}>
            svg
          </button>
          <button title="save as CSV" onClick={saveCsv}>
            csv
          </button>
        </span>
      </figcaption>
      <svg
        ref={svg}
        width={wide}
        height={HEIGHT}
        font-family={FONT}
        font-size="12"
        role="img"
        aria-label={`the loss falls from ${formatNumber(steps[0].loss)} to ${formatNumber(steps[steps.length - 1].loss)} over ${last} steps`}
      >
        {linearTicks.map((level) => (
          <g key={level}>
            <path d={`M${LEFT} ${y(level)}H${wide - 8}`} stroke={faint} stroke-width="1" />
            <text x={LEFT - 8} y={y(level) + 4} text-anchor="end" fill={ink} opacity="0.7">
              {level}
            </text>
          </g>
        ))}
        {tens.map((step) => (
          <text key={step} x={Math.min(x(step), wide - 4)} y={HEIGHT - 8} text-anchor={step === 1 ? "start" : x(step) > wide - 36 ? "end" : "middle"} fill={ink} opacity="0.7">
            {step.toLocaleString("en")}
          </text>
        ))}
        <path d={`M${x(here.step)} ${TOP}V${HEIGHT - BOTTOM}`} stroke={accent} stroke-width="1" stroke-dasharray="3 3" />
        <path d={path} fill="none" stroke={accent} stroke-width="2" stroke-linejoin="round" />
        {validations.map(({ step, loss }) => (
          <circle key={step} cx={x(step)} cy={y(loss)} r="3" fill="none" stroke={ink} stroke-width="1.25">
            <title>{`validation at step ${step}: ${loss.toFixed(4)}`}</title>
          </circle>
        ))}
        {decorations.map(({ step, loss }, i) => (
          <circle
            key={step}
            cx={x(step)}
            cy={y(loss)}
            r={step === here.step ? 7 : 5}
            fill={step === here.step ? accent : toCss(palette.surface)}
            stroke={accent}
            stroke-width="2"
            style={{ cursor: "pointer" }}
            onClick={() => onChoose(i === decorations.length - 1 ? -1 : step)}
          >
            <title>{`snapshot of step ${step}`}</title>
          </circle>
        ))}
      </svg>
    </figure>
  );
}
