// The picture of a lesson, where the notes have one that lives from numbers: drawn of the result that the server computed, by the
// page's own matrix and charts, with a way into the view where the model's own numbers are.
import type { ComponentChildren } from "preact";
import type { Grid } from "../matrix/grid";
import { Matrix } from "../matrix/Matrix";
import { useSession } from "../session";
import { go } from "../state";
import { Arrows, Bars, Chart, type Line, type Tone } from "./charts";

type Numbers = readonly (readonly number[])[];
type Draw = (result: never, reads: (layer: number) => string) => ComponentChildren; // `reads`: the attention that reads a sentence

interface HeatProps {
  name: string;
  rows: readonly string[];
  cols: readonly string[];
  numbers: Numbers;
  scale?: Grid["scale"];
  most?: number;
  causal?: boolean;
  axes?: [string, string];
  comfortable?: number;
}

function Heat({ name, rows, cols, numbers, scale = "sequential", most, causal, axes = ["query", "key"], comfortable = 56 }: HeatProps) {
  const data = numbers.flatMap((row) => row.map((value) => value ?? -Infinity)); // what is masked has no number
  const grid: Grid = {
    name, rows: numbers.length, cols: numbers[0]?.length ?? 0, data, rowLabels: rows, colLabels: cols, rowAxis: axes[0], colAxis: axes[1], scale,
    ...(most ? { most } : {}), ...(causal ? { causal } : {}),
  }; // prettier-ignore
  return <Matrix grid={grid} tallest={440} comfortable={comfortable} />;
}

function Into({ view, text, children, ...more }: { view: string; text?: string; attention?: string; head?: number; children: ComponentChildren }) {
  return (
    <div class="break">
      <button class="chip" onClick={() => go({ view, ...(text ? { text } : {}), ...more, row: -1, cell: "" })}>
        {children} →
      </button>
    </div>
  );
}

interface Spread {
  dimensions: number;
  variance: number;
  scaled: number;
  largest: number;
  largest_scaled: number;
}
interface Alike {
  words: string[];
  cosine: Numbers;
}
interface Curve {
  steps: number[];
  test: number[];
  train: number[];
}

const paired = (xs: readonly number[], ys: readonly number[]): [number, number][] => xs.map((x, i) => [x, ys[i]]);
const two = (first: [string, [number, number][]], second: [string, [number, number][]]): Line[] => [
  { name: first[0], tone: "with", points: first[1] },
  { name: second[0], tone: "without", points: second[1] },
];
const TONES: readonly Tone[] = ["with", "without", "third", "soft"];

const PICTURES: Record<string, Draw> = {
  words: ({ mixtures }: { mixtures: { fruit_sentences: number; phone_sentences: number; to_fruit: number; to_phones: number }[] }) => (
    <Bars
      title="Where “apple” lies, by Word2Vec: its mean cosine to the fruits and to the phones"
      most={1}
      groups={mixtures.map((m) => ({
        name: `${m.fruit_sentences} sentences of fruit, ${m.phone_sentences} of phones`,
        bars: [
          { name: "to the fruits", value: m.to_fruit },
          { name: "to the phones", value: m.to_phones, tone: "without" },
        ],
      }))}
    />
  ),
  similarity: ({ static: looked, contextual, sentence }: { static: Alike; contextual: Alike; sentence: string }) => (
    <>
      {([["looked up", looked], ["in context", contextual]] as const).map(([name, alike]) => (
        <Heat key={name} name={`cosines, ${name}`} rows={alike.words} cols={alike.words} numbers={alike.cosine} scale="diverging" most={1} axes={["token", "token"]} />
      ))}
      <Into view="walk" text={sentence}>
        this sentence in Walk
      </Into>
    </>
  ),
  context: ({ sentences, names }: { names: string[]; sentences: { words: string[]; vectors: Numbers; plain: Numbers; moved: Numbers }[] }) =>
    sentences.map((each, n) => (
      <Arrows
        key={n}
        title={each.words.join(" ")}
        axes={names}
        arrows={each.words.map((word, i) => ({ word, from: each.vectors[i], to: each.moved[i], plain: each.plain[i] }))}
      />
    )),
  lookup: ({ keys, values, temperatures, weights }: { keys: string[]; values: number[]; temperatures: number[]; weights: Numbers }) => (
    <Bars
      title="Who is answered with, by temperature"
      most={1}
      groups={temperatures.map((t, n) => ({ name: `T = ${t}`, bars: keys.map((key, i) => ({ name: `${key} ${values[i]}`, value: weights[n][i] })) }))}
    />
  ),
  qkv: ({ words, steps }: { words: string[]; steps: { scaled: Numbers; weights: Numbers } }) => (
    <>
      <Heat name="scores / √d" rows={words} cols={words} numbers={steps.scaled} scale="diverging" />
      <Heat name="weights: softmax of each row" rows={words} cols={words} numbers={steps.weights} most={1} />
    </>
  ),
  scaling: ({ random, real }: { random: Spread[]; real: Spread[] }) => {
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
          title="Weight of the largest of ten keys, after softmax"
          x="dimensions d"
          y="weight"
          log={{ x: true }}
          lines={two(["of q · k / √d", of(random, "largest_scaled")], ["of q · k", of(random, "largest")])}
        />
      </>
    );
  },
  saturation: ({ divided, plain }: Record<"divided" | "plain", { curve: Curve; probes: { step: number; entropy: number }[] }>) => (
    <>
      <Chart
        title="Entropy of the weights (1: looks everywhere)"
        x="step"
        y="share of the highest"
        lines={two(
          ["divided by √d", divided.probes.map((p) => [p.step, p.entropy])],
          ["not divided", plain.probes.map((p) => [p.step, p.entropy])],
        )}
      />
      <Losses named={[["divided by √d", divided.curve], ["not divided", plain.curve]]} />
    </>
  ),
  heads: ({ answers }: { answers: { sentence: string; words: string[]; asks: string; layer: number; head: number; weights: Numbers }[] }, reads) =>
    answers.map((a) => (
      <div class="stack tight-stack" key={a.sentence}>
        <Heat name={`layer ${a.layer}, head ${a.head}, chosen for “${a.asks}”`} rows={a.words} cols={a.words} numbers={a.weights} most={1} />
        <Into view="heads" text={a.sentence} attention={reads(a.layer)} head={a.head}>
          every head of this sentence
        </Into>
      </div>
    )),
  positions: ({ map, bits }: { map: Numbers; bits: Numbers }) => (
    <>
      <div class="wide">
        <Heat name="sines and cosines of the position" rows={map.map((_, i) => String(i))} cols={[]} numbers={map} scale="diverging" most={1} axes={["position", "number"]} />
      </div>
      <Heat name="counting in binary" rows={bits.map((_, i) => String(i))} cols={["8", "4", "2", "1"]} numbers={bits} most={1} axes={["number", "bit"]} comfortable={30} />
    </>
  ),
  order: ({ positions, none, floor }: { positions: { curve: Curve }; none: { curve: Curve }; floor: number }) => (
    <Losses named={[["with positions", positions.curve], ["without", none.curve]]} level={{ at: floor, name: "cost of a coin toss" }} />
  ),
  norms: ({ padded, batch, layer, names }: { padded: { rows: number; batch_moved: number; layer_moved: number }[]; batch: Numbers; layer: Numbers; names: string[] }) => (
    <>
      {([["batch norm: down the columns", batch], ["layer norm: along the rows", layer]] as const).map(([name, numbers]) => (
        <Heat key={name} name={name} rows={numbers.map((_, i) => `S${i + 1}`)} cols={names} numbers={numbers} scale="diverging" axes={["sample", "feature"]} />
      ))}
      <Chart
        title="How far rows of zeros move the real ones"
        x="rows of zeros"
        y="in parts of their length"
        lines={two(["layer norm", padded.map((p) => [p.rows, p.layer_moved])], ["batch norm", padded.map((p) => [p.rows, p.batch_moved])])}
      />
    </>
  ),
  encoder: ({ places, words, moved, reached_by_attention, reached_by_feed_forward, sentence }: { places: string[]; words: string[]; moved: Numbers; reached_by_attention: number[]; reached_by_feed_forward: number[]; sentence: string }) => (
    <>
      <Heat name="who has moved, and where" rows={places.map((place) => place.replace(/^(en|de)coder\.(0\.)?(self\.|masked\.)?|\.output$/g, ""))} cols={words} numbers={moved} axes={["place", "token"]} />
      <Heat name="one vector changed inside" rows={["attention", "feed-forward"]} cols={words} numbers={[reached_by_attention, reached_by_feed_forward]} axes={["sub-layer", "token"]} />
      <Into view="walk" text={sentence}>
        this sentence in Walk
      </Into>
    </>
  ),
  mask: ({ words, weights, open_weights, sentence, layer, head }: { words: string[]; weights: Numbers; open_weights: Numbers; sentence: string; layer: number; head: number }) => (
    <>
      <Heat name="weights with the mask" rows={words} cols={words} numbers={weights} most={1} causal />
      <Heat name="the same scores without it" rows={words} cols={words} numbers={open_weights} most={1} />
      <Into view="microscope" text={sentence} attention={`decoder.${layer}.masked`} head={head}>
        under the microscope
      </Into>
    </>
  ),
  leak: ({ masked, open, floor }: { masked: { curve: Curve }; open: { curve: Curve }; floor: number }) => (
    <Losses named={[["with the mask", masked.curve], ["without", open.curve]]} level={{ at: floor, name: "cost of guessing which translation" }} />
  ),
  decoder: ({ written, taught }: Record<"written" | "taught", { sentence: string; output: string; places: { reads: string; writes: string; probability: number }[] }>) => (
    <>
      <Bars
        title="How likely each token was"
        most={1}
        groups={[written, taught].map((pass) => ({
          name: `${pass.sentence} → ${pass.output}`,
          bars: pass.places.map((p) => ({ name: `${p.reads} → ${p.writes}`, value: p.probability })),
        }))}
      />
      <Into view="walk" text={written.sentence}>
        this sentence in Walk
      </Into>
    </>
  ),
  cross: ({ sentences }: { sentences: { source: string[] }[] }) => (
    // its tables are the picture: every weight, shaded
    <Into view="translate" text={sentences[0].source.join(" ")}>
      the first as a ribbon, in Translate
    </Into>
  ),
  next: ({ logits, temperatures, probabilities, source }: { logits: number[]; temperatures: number[]; probabilities: Numbers; source: string }) => (
    <>
      <Bars
        title="softmax(x / T): the larger T, the flatter"
        most={1}
        groups={temperatures.map((t, n) => ({ name: `T = ${t}`, bars: logits.map((x, i) => ({ name: String(x).replace("-", "−"), value: probabilities[n][i] })) }))}
      />
      <Into view="translate" text={source}>
        the model’s own logits in Translate
      </Into>
    </>
  ),
  directions: ({ measured }: { measured: [string, number][] }) => (
    <Bars title="How plural: along the mean of the pairs" groups={[{ name: "", bars: [...measured].sort((a, b) => b[1] - a[1]).map(([name, value]) => ({ name, value })) }]} />
  ),
  senses: ({ words }: { words: { word: string; sentences: string[]; places: string[]; cosines: readonly Numbers[]; means: number[] }[] }) =>
    words.map((each) => (
      <Chart
        key={each.word}
        title={`“${each.word}”: cosines between its sentences`}
        x=""
        y="cosine"
        isTight
        marks={each.places.map((place) => ({ embedded: "looked up", input: "+ pos", vectors: "end" })[place.split(".")[1]] ?? `block ${place.split(".")[1]}`)}
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

export function Picture({ lesson, result }: { lesson: string; result: Record<string, unknown> }) {
  const { shape } = useSession().card.config.model;
  const reads = (layer: number): string => (shape === "decoder" ? `decoder.${layer}.masked` : `encoder.${layer}.self`);
  const draw = PICTURES[lesson];
  return draw ? <div class="pictures">{draw(result as never, reads)}</div> : null;
}
