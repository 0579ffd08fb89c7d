// The picture of a lesson, where the notes have one that lives from numbers: drawn of the result that the server computed, by the
// page's own matrix and charts, with a way into the view where the model's own numbers are.
import type { ComponentChildren } from "preact";
import type { LessonResults } from "../../api";
import type { Grid } from "../../matrix/grid";
import { Matrix } from "../../matrix/matrix";
import { useSession } from "../../session";
import { navigate } from "../../url-state";
import { Arrows, Bars, Chart, type Line, type Tone } from "./charts";

type Numbers = readonly (readonly number[])[];
type Draw<Result> = (result: Result, reads: (layer: number) => string) => ComponentChildren; // `reads`: the attention that reads a sentence

interface HeatProps {
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

function Heat({ name, rows, cols, numbers, scale = "sequential", max, causal, axes = ["query", "key"], maxCellWidth = 56 }: HeatProps) {
  const data = numbers.flatMap((row) => row.map((value) => value ?? -Infinity)); // what is masked has no number
  const grid: Grid = {
    name, rows: numbers.length, cols: numbers[0]?.length ?? 0, data, rowLabels: rows, colLabels: cols, rowAxis: axes[0], colAxis: axes[1], scale,
    ...(max ? { max } : {}), ...(causal ? { causal } : {}),
  }; // prettier-ignore
  return <Matrix grid={grid} maxHeight={440} maxCellWidth={maxCellWidth} />;
}

function Into({ view, text, children, ...more }: { view: string; text?: string; attention?: string; head?: number; children: ComponentChildren }) {
  return (
    <div class="full-width">
      <button class="chip" onClick={() => navigate({ view, ...(text ? { text } : {}), ...more, row: -1, cell: "" })}>
        {children} →
      </button>
    </div>
  );
}

type Curve = LessonResults["leak"]["masked"]["curve"];
type Spread = LessonResults["scaling"]["random"][number];

const paired = (xs: readonly number[], ys: readonly number[]): [number, number][] => xs.map((x, i) => [x, ys[i]]);
const two = (first: [string, [number, number][]], second: [string, [number, number][]]): Line[] => [
  { name: first[0], tone: "with", points: first[1] },
  { name: second[0], tone: "without", points: second[1] },
];
const TONES: readonly Tone[] = ["with", "without", "third", "soft"];

const PICTURES: { [Lesson in keyof LessonResults]?: Draw<LessonResults[Lesson]> } = {
  words: ({ mixtures }) => (
    <Bars
      title="Where “apple” lies, by Word2Vec: its mean cosine to the fruits and to the phones"
      max={1}
      groups={mixtures.map((m) => ({
        name: `${m.fruit_sentences} sentences of fruit, ${m.phone_sentences} of phones`,
        bars: [
          { name: "to the fruits", value: m.to_fruit },
          { name: "to the phones", value: m.to_phones, tone: "without" },
        ],
      }))}
    />
  ),
  similarity: ({ static: looked, contextual, sentence }) => (
    <>
      {([["looked up", looked], ["in context", contextual]] as const).map(([name, alike]) => (
        <Heat key={name} name={`cosines, ${name}`} rows={alike.words} cols={alike.words} numbers={alike.cosine} scale="diverging" max={1} axes={["token", "token"]} />
      ))}
      <Into view="walk" text={sentence}>
        this sentence in Walk
      </Into>
    </>
  ),
  context: ({ sentences, names }) =>
    sentences.map((each, n) => (
      <Arrows
        key={n}
        title={each.words.join(" ")}
        axes={names}
        arrows={each.words.map((word, i) => ({ word, from: each.vectors[i], to: each.softmax_output[i], plain: each.normalized_output[i] }))}
      />
    )),
  lookup: ({ keys, values, temperatures, weights }) => (
    <Bars
      title="Who is answered with, by temperature"
      max={1}
      groups={temperatures.map((t, n) => ({ name: `T = ${t}`, bars: keys.map((key, i) => ({ name: `${key} ${values[i]}`, value: weights[n][i] })) }))}
    />
  ),
  qkv: ({ words, steps }) => (
    <>
      <Heat name="scores / √d" rows={words} cols={words} numbers={steps.scaled} scale="diverging" />
      <Heat name="weights: softmax of each row" rows={words} cols={words} numbers={steps.weights} max={1} />
    </>
  ),
  scaling: ({ random, real }) => {
    const of = (list: Spread[], what: keyof Spread): [number, number][] => list.map((s) => [s.dimensions, s[what]]);
    return (
      <>
        <Chart
          title="Variance of a dot product"
          x="dimensions d"
          y="variance"
          log={{ x: true, y: true }}
          lines={[
            { name: "q · k, random", tone: "without", points: of(random, "variance") },
            { name: "q · k / √d, random", tone: "with", points: of(random, "scaled") },
            { name: "q · k, the model’s", tone: "without", thin: true, points: of(real, "variance") },
            { name: "q · k / √d, the model’s", tone: "with", thin: true, points: of(real, "scaled") },
          ]}
        />
        <Chart
          title="Weight of the maxMagnitude of ten keys, after softmax"
          x="dimensions d"
          y="weight"
          log={{ x: true }}
          lines={two(["of q · k / √d", of(random, "largest_scaled")], ["of q · k", of(random, "largest")])}
        />
      </>
    );
  },
  saturation: ({ scaled, unscaled }) => (
    <>
      <Chart
        title="Entropy of the weights (1: looks everywhere)"
        x="step"
        y="share of the argmax"
        lines={two(
          ["divided by √d", scaled.probes.map((p) => [p.step, p.entropy])],
          ["not divided", unscaled.probes.map((p) => [p.step, p.entropy])],
        )}
      />
      <Losses named={[["divided by √d", scaled.curve], ["not divided", unscaled.curve]]} />
    </>
  ),
  heads: ({ answers }, reads) =>
    answers.map((a) => (
      <div class="stack tight-stack" key={a.sentence}>
        <Heat name={`layer ${a.layer}, head ${a.head}, chosen for “${a.query}”`} rows={a.words} cols={a.words} numbers={a.weights} max={1} />
        <Into view="heads" text={a.sentence} attention={reads(a.layer)} head={a.head}>
          every head of this sentence
        </Into>
      </div>
    )),
  positions: ({ map, bits }) => (
    <>
      <div class="wide">
        <Heat name="sines and cosines of the position" rows={map.map((_, i) => String(i))} cols={[]} numbers={map} scale="diverging" max={1} axes={["position", "number"]} />
      </div>
      <Heat name="counting in binary" rows={bits.map((_, i) => String(i))} cols={["8", "4", "2", "1"]} numbers={bits} max={1} axes={["number", "bit"]} maxCellWidth={30} />
    </>
  ),
  order: ({ with_positions, without_positions, floor }) => (
    <Losses named={[["with positions", with_positions.curve], ["without", without_positions.curve]]} level={{ at: floor, name: "cost of a coin toss" }} />
  ),
  norms: ({ padded, batch, layer, names }) => (
    <>
      {([["batch norm: down the columns", batch], ["layer norm: along the rows", layer]] as const).map(([name, numbers]) => (
        <Heat key={name} name={name} rows={numbers.map((_, i) => `S${i + 1}`)} cols={names} numbers={numbers} scale="diverging" axes={["sample", "feature"]} />
      ))}
      <Chart
        title="How far rows of zeros move the real ones"
        x="rows of zeros"
        y="in parts of their length"
        lines={two(["layer norm", padded.map((p) => [p.rows, p.layer_change])], ["batch norm", padded.map((p) => [p.rows, p.batch_change])])}
      />
    </>
  ),
  encoder: ({ values, words, change, attention_change, feed_forward_change, sentence }) => (
    <>
      <Heat name="who has moved, and where" rows={values.map((name) => name.replace(/^(en|de)coder\.(0\.)?(self\.|masked\.)?|\.output$/g, ""))} cols={words} numbers={change} axes={["place", "token"]} />
      <Heat name="one vector changed inside" rows={["attention", "feed-forward"]} cols={words} numbers={[attention_change, feed_forward_change]} axes={["sub-layer", "token"]} />
      <Into view="walk" text={sentence}>
        this sentence in Walk
      </Into>
    </>
  ),
  mask: ({ words, weights, unmasked_weights, sentence, layer, head }) => (
    <>
      <Heat name="weights with the mask" rows={words} cols={words} numbers={weights} max={1} causal />
      <Heat name="the same scores without it" rows={words} cols={words} numbers={unmasked_weights} max={1} />
      <Into view="microscope" text={sentence} attention={`decoder.${layer}.masked`} head={head}>
        under the microscope
      </Into>
    </>
  ),
  leak: ({ masked, unmasked, floor }) => (
    <Losses named={[["with the mask", masked.curve], ["without", unmasked.curve]]} level={{ at: floor, name: "cost of guessing which translation" }} />
  ),
  decoder: ({ generated, forced }) => (
    <>
      <Bars
        title="How likely each token was"
        max={1}
        groups={[generated, forced].map((pass) => ({
          name: `${pass.sentence} → ${pass.output}`,
          bars: pass.positions.map((p) => ({ name: `${p.input} → ${p.target}`, value: p.probability })),
        }))}
      />
      <Into view="walk" text={generated.sentence}>
        this sentence in Walk
      </Into>
    </>
  ),
  cross: ({ sentences }) => (
    // its tables are the picture: every weight, shaded
    <Into view="translate" text={sentences[0].source.join(" ")}>
      the first as a ribbon, in Translate
    </Into>
  ),
  next: ({ logits, temperatures, probabilities, source }) => (
    <>
      <Bars
        title="softmax(x / T): the larger T, the flatter"
        max={1}
        groups={temperatures.map((t, n) => ({ name: `T = ${t}`, bars: logits.map((x, i) => ({ name: String(x).replace("-", "−"), value: probabilities[n][i] })) }))}
      />
      <Into view="translate" text={source}>
        the model’s own logits in Translate
      </Into>
    </>
  ),
  directions: ({ projections }) => (
    <Bars title="How plural: along the mean of the pairs" groups={[{ name: "", bars: [...projections].sort((a, b) => b[1] - a[1]).map(([name, value]) => ({ name, value })) }]} />
  ),
  senses: ({ words }) =>
    words.map((each) => (
      <Chart
        key={each.word}
        title={`“${each.word}”: cosines between its sentences`}
        x=""
        y="cosine"
        isTight
        decorations={each.layers.map((place) => ({ embedded: "looked up", input: "+ pos", vectors: "end" })[place.split(".")[1]] ?? `block ${place.split(".")[1]}`)}
        lines={[
          ...each.sentences.slice(1, 4).map((_, i): Line => ({ name: `1 · ${i + 2}`, tone: TONES[i + 1], thin: true, points: each.cosines.map((table, p) => [p, table[0][i + 1]]) })),
          { name: "mean of all pairs", tone: "with", points: each.means.map((mean, p) => [p, mean]) },
        ]}
      />
    )),
};

function Losses({ named, level }: { named: [[string, Curve], [string, Curve]]; level?: { at: number; name: string } }) {
  const lines = two([named[0][0], paired(named[0][1].steps, named[0][1].test)], [named[1][0], paired(named[1][1].steps, named[1][1].test)]);
  return <Chart title="Loss on unseen sentences" x="step" y="−ln p a token" log={{ y: true }} lines={lines} level={level} />;
}

export function LessonFigure({ lesson, result }: { lesson: string; result: Record<string, unknown> }) {
  const { shape } = useSession().model.config.model;
  const reads = (layer: number): string => (shape === "decoder" ? `decoder.${layer}.masked` : `encoder.${layer}.self`);
  const draw = PICTURES[lesson as keyof LessonResults] as Draw<typeof result> | undefined;
  return draw ? <div class="lesson-figures">{draw(result, reads)}</div> : null;
}
