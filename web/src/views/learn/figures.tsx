// The figures of the lessons, drawn from the server's results with the page's matrix and charts, with links to the other views.
import type { ComponentChildren } from "preact";
import type { LessonResults } from "../../api";
import type { Grid } from "../../matrix/grid";
import { Matrix } from "../../matrix/matrix";
import { useSession } from "../../session";
import { navigate } from "../../url-state";
import { Arrows, Bars, Chart, type Line, type Tone } from "./charts";

type Numbers = readonly (readonly number[])[];
/** `selfAttention` names the self-attention of a layer. */
type Render<Result> = (result: Result, selfAttention: (layer: number) => string) => ComponentChildren;

interface HeatMapProps {
  name: string;
  rows: readonly string[];
  cols: readonly string[];
  numbers: Numbers;
  scale?: Grid["scale"];
  max?: number;
  causal?: boolean;
  axes?: [string, string];
  maxCellWidth?: number;
}

function HeatMap({ name, rows, cols, numbers, scale = "sequential", max, causal, axes = ["query", "key"], maxCellWidth = 56 }: HeatMapProps) {
  const data = numbers.flatMap((row) => row.map((value) => value ?? -Infinity)); // masked cells are null
  const grid: Grid = {
    name, rows: numbers.length, cols: numbers[0]?.length ?? 0, data, rowLabels: rows, colLabels: cols, rowAxis: axes[0], colAxis: axes[1], scale,
    ...(max ? { max } : {}), ...(causal ? { causal } : {}),
  }; // prettier-ignore
  return <Matrix grid={grid} maxHeight={440} maxCellWidth={maxCellWidth} />;
}

function ViewLink({ view, text, children, ...state }: { view: string; text?: string; attention?: string; head?: number; children: ComponentChildren }) {
  return (
    <div class="full-width">
      <button class="chip" onClick={() => navigate({ view, ...(text ? { text } : {}), ...state, row: -1, cell: "" })}>
        {children} →
      </button>
    </div>
  );
}

type Curve = LessonResults["leak"]["masked"]["curve"];
type Spread = LessonResults["scaling"]["random"][number];

const zip = (xs: readonly number[], ys: readonly number[]): [number, number][] => xs.map((x, i) => [x, ys[i]]);
const twoLines = (first: [string, [number, number][]], second: [string, [number, number][]]): Line[] => [
  { name: first[0], tone: "primary", points: first[1] },
  { name: second[0], tone: "secondary", points: second[1] },
];
const TONES: readonly Tone[] = ["primary", "secondary", "tertiary", "muted"];

const FIGURES: { [Lesson in keyof LessonResults]?: Render<LessonResults[Lesson]> } = {
  words: ({ mixtures }) => (
    <Bars
      title="Word2Vec: mean cosine similarity of “apple” to the fruits and to the phones"
      max={1}
      groups={mixtures.map((m) => ({
        name: `${m.fruit_sentences} sentences about fruit, ${m.phone_sentences} about phones`,
        bars: [
          { name: "to the fruits", value: m.to_fruit },
          { name: "to the phones", value: m.to_phones, tone: "secondary" },
        ],
      }))}
    />
  ),
  similarity: ({ static: fixed, contextual, sentence }) => (
    <>
      {([["static", fixed], ["contextual", contextual]] as const).map(([name, similarity]) => (
        <HeatMap key={name} name={`cosine similarity, ${name}`} rows={similarity.words} cols={similarity.words} numbers={similarity.cosine} scale="diverging" max={1} axes={["token", "token"]} />
      ))}
      <ViewLink view="walk" text={sentence}>
        show this sentence in Walk
      </ViewLink>
    </>
  ),
  context: ({ sentences, names }) =>
    sentences.map((each, n) => (
      <Arrows
        key={n}
        title={each.words.join(" ")}
        axes={names}
        arrows={each.words.map((word, i) => ({ word, from: each.vectors[i], softmax: each.softmax_output[i], normalized: each.normalized_output[i] }))}
      />
    )),
  lookup: ({ keys, values, temperatures, weights }) => (
    <Bars
      title="Attention weights by temperature"
      max={1}
      groups={temperatures.map((t, n) => ({ name: `T = ${t}`, bars: keys.map((key, i) => ({ name: `${key} ${values[i]}`, value: weights[n][i] })) }))}
    />
  ),
  qkv: ({ words, steps }) => (
    <>
      <HeatMap name="scores / √d" rows={words} cols={words} numbers={steps.scaled} scale="diverging" />
      <HeatMap name="weights (softmax of each row)" rows={words} cols={words} numbers={steps.weights} max={1} />
    </>
  ),
  scaling: ({ random, real }) => {
    const points = (list: Spread[], field: keyof Spread): [number, number][] => list.map((s) => [s.dimensions, s[field]]);
    return (
      <>
        <Chart
          title="Variance of a dot product"
          x="dimensions d"
          y="variance"
          log={{ x: true, y: true }}
          lines={[
            { name: "q · k, random", tone: "secondary", points: points(random, "variance") },
            { name: "q · k / √d, random", tone: "primary", points: points(random, "scaled") },
            { name: "q · k, model", tone: "secondary", thin: true, points: points(real, "variance") },
            { name: "q · k / √d, model", tone: "primary", thin: true, points: points(real, "scaled") },
          ]}
        />
        <Chart
          title="Largest softmax weight among ten keys"
          x="dimensions d"
          y="weight"
          log={{ x: true }}
          lines={twoLines(["q · k / √d", points(random, "largest_scaled")], ["q · k", points(random, "largest")])}
        />
      </>
    );
  },
  saturation: ({ scaled, unscaled }) => (
    <>
      <Chart
        title="Entropy of the attention weights (1: uniform)"
        x="step"
        y="fraction of the maximum"
        lines={twoLines(
          ["scaled by 1/√d", scaled.probes.map((p) => [p.step, p.entropy])],
          ["unscaled", unscaled.probes.map((p) => [p.step, p.entropy])],
        )}
      />
      <LossChart curves={[["scaled by 1/√d", scaled.curve], ["unscaled", unscaled.curve]]} />
    </>
  ),
  heads: ({ answers }, selfAttention) =>
    answers.map((a) => (
      <div class="stack tight-stack" key={a.sentence}>
        <HeatMap name={`layer ${a.layer}, head ${a.head}, selected for “${a.query}”`} rows={a.words} cols={a.words} numbers={a.weights} max={1} />
        <ViewLink view="heads" text={a.sentence} attention={selfAttention(a.layer)} head={a.head}>
          show all heads for this sentence
        </ViewLink>
      </div>
    )),
  positions: ({ map, bits }) => (
    <>
      <div class="wide">
        <HeatMap name="sinusoidal position encoding" rows={map.map((_, i) => String(i))} cols={[]} numbers={map} scale="diverging" max={1} axes={["position", "dimension"]} />
      </div>
      <HeatMap name="binary counting" rows={bits.map((_, i) => String(i))} cols={["8", "4", "2", "1"]} numbers={bits} max={1} axes={["number", "bit"]} maxCellWidth={30} />
    </>
  ),
  order: ({ with_positions, without_positions, floor }) => (
    <LossChart curves={[["with positions", with_positions.curve], ["without positions", without_positions.curve]]} reference={{ value: floor, name: "loss of a coin toss" }} />
  ),
  norms: ({ padded, batch, layer, names }) => (
    <>
      {([["batch norm (over columns)", batch], ["layer norm (over rows)", layer]] as const).map(([name, numbers]) => (
        <HeatMap key={name} name={name} rows={numbers.map((_, i) => `S${i + 1}`)} cols={names} numbers={numbers} scale="diverging" axes={["sample", "feature"]} />
      ))}
      <Chart
        title="Effect of zero padding on the real rows"
        x="rows of zeros"
        y="relative change"
        lines={twoLines(["layer norm", padded.map((p) => [p.rows, p.layer_change])], ["batch norm", padded.map((p) => [p.rows, p.batch_change])])}
      />
    </>
  ),
  encoder: ({ values, words, change, attention_change, feed_forward_change, sentence }) => (
    <>
      <HeatMap name="change of each token, by component" rows={values.map((name) => name.replace(/^(en|de)coder\.(0\.)?(self\.|masked\.)?|\.output$/g, ""))} cols={words} numbers={change} axes={["component", "token"]} />
      <HeatMap name="change after perturbing one vector" rows={["attention", "feed-forward"]} cols={words} numbers={[attention_change, feed_forward_change]} axes={["sub-layer", "token"]} />
      <ViewLink view="walk" text={sentence}>
        show this sentence in Walk
      </ViewLink>
    </>
  ),
  mask: ({ words, weights, unmasked_weights, sentence, layer, head }) => (
    <>
      <HeatMap name="weights with mask" rows={words} cols={words} numbers={weights} max={1} causal />
      <HeatMap name="weights without mask" rows={words} cols={words} numbers={unmasked_weights} max={1} />
      <ViewLink view="microscope" text={sentence} attention={`decoder.${layer}.masked`} head={head}>
        open in Microscope
      </ViewLink>
    </>
  ),
  leak: ({ masked, unmasked, floor }) => (
    <LossChart curves={[["with mask", masked.curve], ["without mask", unmasked.curve]]} reference={{ value: floor, name: "loss of guessing the translation" }} />
  ),
  decoder: ({ generated, forced }) => (
    <>
      <Bars
        title="Probability of each token"
        max={1}
        groups={[generated, forced].map((pass) => ({
          name: `${pass.sentence} → ${pass.output}`,
          bars: pass.positions.map((p) => ({ name: `${p.input} → ${p.target}`, value: p.probability })),
        }))}
      />
      <ViewLink view="walk" text={generated.sentence}>
        show this sentence in Walk
      </ViewLink>
    </>
  ),
  cross: ({ sentences }) => (
    // the shaded tables of the lesson are its figure
    <ViewLink view="translate" text={sentences[0].source.join(" ")}>
      show the first sentence in Translate
    </ViewLink>
  ),
  next: ({ logits, temperatures, probabilities, source }) => (
    <>
      <Bars
        title="softmax(x / T): a larger T flattens the distribution"
        max={1}
        groups={temperatures.map((t, n) => ({ name: `T = ${t}`, bars: logits.map((x, i) => ({ name: String(x).replace("-", "−"), value: probabilities[n][i] })) }))}
      />
      <ViewLink view="translate" text={source}>
        show the model’s logits in Translate
      </ViewLink>
    </>
  ),
  directions: ({ projections }) => (
    <Bars title="Projection onto the plural direction" groups={[{ name: "", bars: [...projections].sort((a, b) => b[1] - a[1]).map(([name, value]) => ({ name, value })) }]} />
  ),
  senses: ({ words }) =>
    words.map((each) => (
      <Chart
        key={each.word}
        title={`“${each.word}”: cosine similarity between its sentences`}
        x=""
        y="cosine"
        isTight
        categories={each.layers.map((name) => ({ embedded: "static", input: "+ pos", vectors: "final" })[name.split(".")[1]] ?? `block ${name.split(".")[1]}`)}
        lines={[
          ...each.sentences.slice(1, 4).map((_, i): Line => ({ name: `1 · ${i + 2}`, tone: TONES[i + 1], thin: true, points: each.cosines.map((table, p) => [p, table[0][i + 1]]) })),
          { name: "mean of all pairs", tone: "primary", points: each.means.map((mean, p) => [p, mean]) },
        ]}
      />
    )),
};

function LossChart({ curves, reference }: { curves: [[string, Curve], [string, Curve]]; reference?: { value: number; name: string } }) {
  const [[name1, curve1], [name2, curve2]] = curves;
  const lines = twoLines([name1, zip(curve1.steps, curve1.test)], [name2, zip(curve2.steps, curve2.test)]);
  return <Chart title="Loss on unseen sentences" x="step" y="−ln p per token" log={{ y: true }} lines={lines} reference={reference} />;
}

export function LessonFigure({ lesson, result }: { lesson: string; result: Record<string, unknown> }) {
  const { shape } = useSession().model.config.model;
  const selfAttention = (layer: number): string => (shape === "decoder" ? `decoder.${layer}.masked` : `encoder.${layer}.self`);
  const render = FIGURES[lesson as keyof LessonResults] as Render<typeof result> | undefined;
  return render ? <div class="lesson-figures">{render(result, selfAttention)}</div> : null;
}
