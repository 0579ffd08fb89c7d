// The logged training loss over the steps, with the snapshots as points. Both axes are logarithmic: most of the progress
// happens in the first steps.
import { useRef } from "preact/hooks";
import { type History, type ModelInfo, source } from "../api";
import { toCss } from "../color";
import { formatNumber } from "../format";
import { latestValue, useAsync, usePalette, useWidth } from "../hooks";
import { logTicks } from "../math";
import { download } from "../matrix/export";
import { FONT } from "../matrix/paint";
import { EmptyState, ErrorMessage, Loading } from "../ui";

interface LossCurveProps {
  model: ModelInfo;
  snapshots: readonly number[];
  selected: number; // −1: the final model
  onSelect: (step: number) => void;
}

const HEIGHT = 260;
const LEFT = 40;
const BOTTOM = 28;
const TOP = 12;

export function LossCurve({ model, snapshots, selected, onSelect }: LossCurveProps) {
  const loaded = useAsync(() => source.history(model.name), [model.name]);
  const history = latestValue(loaded);
  return (
    <>
      <div class="section-header">
        <div>
          <h2>Training loss</h2>
          <p class="muted small">Cross-entropy per token in nats, as logged during training; small circles: validation set.</p>
        </div>
      </div>
      {loaded.state === "failed" ? <ErrorMessage error={loaded.error} /> : null}
      {!history ? (
        loaded.state === "failed" ? null : (
          <Loading what="training log" />
        )
      ) : history.steps.length > 1 ? (
        <>
          <Curve {...{ history, snapshots, selected, onSelect }} name={model.name} />
          <WhyBelow history={history} dropout={model.config.model.dropout} />
        </>
      ) : (
        <EmptyState>
          <p>This model has no training log (log.jsonl).</p>
        </EmptyState>
      )}
    </>
  );
}

/** Explains a validation loss that is lower than the training loss. */
function WhyBelow({ history: { steps, validations }, dropout }: { history: History; dropout: number }) {
  const last = validations[validations.length - 1];
  if (!last || !dropout || last.loss >= steps[steps.length - 1].loss) return null;
  return (
    <p class="muted small">
      The validation loss is the lower one: it is measured without dropout, which hides {formatNumber(dropout * 100, 0)}% of the
      activations in training, and with the weights at that step instead of those of the steps before.
    </p>
  );
}

interface CurveProps extends Omit<LossCurveProps, "model"> {
  history: History;
  name: string;
}

export function Curve({ history, snapshots, selected, onSelect, name }: CurveProps) {
  const [figure, width] = useWidth<HTMLElement>();
  const svg = useRef<SVGSVGElement>(null);
  const palette = usePalette();
  const { steps, validations } = history;
  const lastStep = Math.max(steps[steps.length - 1].step, ...snapshots);
  const losses = [...steps, ...validations].map(({ loss }) => loss).filter((loss) => loss > 0);
  const [min, max] = [Math.min(...losses), Math.max(...losses)];
  const chartWidth = Math.max(width, 240);
  const x = (step: number): number =>
    LEFT + (Math.log(Math.max(1, step)) / Math.log(Math.max(2, lastStep))) * (chartWidth - LEFT - 14);
  const y = (loss: number): number =>
    TOP + (Math.log(max / Math.max(loss, min)) / Math.log(Math.max(max / min, 1.01))) * (HEIGHT - TOP - BOTTOM);
  const path = steps.map(({ step, loss }, i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(loss).toFixed(1)}`).join("");
  const nearest = (step: number): { step: number; loss: number } =>
    steps.reduce((best, entry) => (Math.abs(entry.step - step) < Math.abs(best.step - step) ? entry : best));
  const points = [
    ...snapshots.map((step) => ({ step, loss: nearest(step).loss })),
    { step: lastStep, loss: nearest(lastStep).loss },
  ];
  const current =
    selected < 0 ? points[points.length - 1] : (points.find(({ step }) => step === selected) ?? points[points.length - 1]);
  const stepTicks = Array.from({ length: Math.floor(Math.log10(lastStep)) + 1 }, (_, n) => 10 ** n);
  const lossTicks = logTicks(min, max);
  const [text, muted, accent] = [toCss(palette.text), toCss(palette.muted), toCss(palette.accent)];
  const logged = nearest(current.step);
  const saveSvg = (): void => {
    const copy = svg.current!.cloneNode(true) as SVGSVGElement;
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    download(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }), `${name}-loss.svg`);
  };
  const saveCsv = (): void => {
    const lines = [
      ...steps.map(({ step, loss }) => `training,${step},${loss}`),
      ...validations.map(({ step, loss }) => `validation,${step},${loss}`),
    ];
    download(new Blob([`set,step,loss\n${lines.join("\n")}\n`], { type: "text/csv" }), `${name}-loss.csv`);
  };
  return (
    <figure class="matrix loss-curve" ref={figure}>
      <figcaption>
        <span>
          {selected < 0 ? "final model" : `step ${current.step.toLocaleString("en")}`}: loss{" "}
          <b data-loss={logged.loss}>{formatNumber(logged.loss, 3)}</b>
          {selected >= 0 && logged.step === current.step ? "" : `, logged at step ${logged.step.toLocaleString("en")}`}
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
        width={chartWidth}
        height={HEIGHT}
        font-family={FONT}
        font-size="12"
        role="img"
        aria-label={`the loss falls from ${formatNumber(steps[0].loss)} to ${formatNumber(steps[steps.length - 1].loss)} over ${lastStep} steps`}
      >
        {lossTicks.map((loss) => (
          <g key={loss}>
            <path d={`M${LEFT} ${y(loss)}H${chartWidth - 8}`} stroke={muted} stroke-width="1" />
            <text x={LEFT - 8} y={y(loss) + 4} text-anchor="end" fill={text} opacity="0.7">
              {loss}
            </text>
          </g>
        ))}
        {stepTicks.map((step) => (
          <text
            key={step}
            x={Math.min(x(step), chartWidth - 4)}
            y={HEIGHT - 8}
            text-anchor={step === 1 ? "start" : x(step) > chartWidth - 36 ? "end" : "middle"}
            fill={text}
            opacity="0.7"
          >
            {step.toLocaleString("en")}
          </text>
        ))}
        <path d={`M${x(current.step)} ${TOP}V${HEIGHT - BOTTOM}`} stroke={accent} stroke-width="1" stroke-dasharray="3 3" />
        <path d={path} fill="none" stroke={accent} stroke-width="2" stroke-linejoin="round" />
        {validations.map(({ step, loss }) => (
          <circle key={step} cx={x(step)} cy={y(loss)} r="3" fill="none" stroke={text} stroke-width="1.25">
            <title>{`validation at step ${step}: ${loss.toFixed(4)}`}</title>
          </circle>
        ))}
        {points.map(({ step, loss }, i) => (
          <circle
            key={step}
            cx={x(step)}
            cy={y(loss)}
            r={step === current.step ? 7 : 5}
            fill={step === current.step ? accent : toCss(palette.surface)}
            stroke={accent}
            stroke-width="2"
            style={{ cursor: "pointer" }}
            onClick={() => onSelect(i === points.length - 1 ? -1 : step)}
          >
            <title>{`snapshot at step ${step}`}</title>
          </circle>
        ))}
      </svg>
    </figure>
  );
}
