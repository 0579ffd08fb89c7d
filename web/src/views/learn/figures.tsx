// The figures of the lessons, drawn from the server's results with the page's matrix and charts. A lesson without one here shows
// the picture of its text.
import type { ComponentChildren } from "preact";
import type { LessonResults } from "../../api";
import { Arrows, Bars, Chart, type Line } from "./charts";
import { HeatMap } from "./heat-map";

type Render<Result> = (result: Result) => ComponentChildren;

type Curve = LessonResults["leak"]["masked"]["curve"];
type Spread = LessonResults["scaling"]["random"][number];

const zip = (xs: readonly number[], ys: readonly number[]): [number, number][] => xs.map((x, i) => [x, ys[i]]);
const twoLines = (first: [string, [number, number][]], second: [string, [number, number][]]): Line[] => [
  { name: first[0], tone: "primary", points: first[1] },
  { name: second[0], tone: "secondary", points: second[1] },
];

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
  similarity: ({ static: fixed, contextual }) => (
    <>
      {(
        [
          ["static", fixed],
          ["contextual", contextual],
        ] as const
      ).map(([name, similarity]) => (
        <HeatMap
          key={name}
          name={`cosine similarity, ${name}`}
          rows={similarity.words}
          cols={similarity.words}
          numbers={similarity.cosine}
          scale="diverging"
          max={1}
          axes={["token", "token"]}
        />
      ))}
    </>
  ),
  context: ({ sentences, names }) =>
    sentences.map((each, n) => (
      <Arrows
        key={n}
        title={each.words.join(" ")}
        axes={names}
        arrows={each.words.map((word, i) => ({
          word,
          from: each.vectors[i],
          softmax: each.softmax_output[i],
          normalized: each.normalized_output[i],
        }))}
      />
    )),
  lookup: ({ keys, values, temperatures, weights }) => (
    <Bars
      title="Attention weights by temperature"
      max={1}
      groups={temperatures.map((t, n) => ({
        name: `T = ${t}`,
        bars: keys.map((key, i) => ({ name: `${key} ${values[i]}`, value: weights[n][i] })),
      }))}
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
      <LossChart
        curves={[
          ["scaled by 1/√d", scaled.curve],
          ["unscaled", unscaled.curve],
        ]}
      />
    </>
  ),
  positions: ({ map, curves, curve_positions }) => (
    <>
      <div class="full-width">
        <HeatMap
          name="sinusoidal position encoding"
          rows={map.map((_, i) => String(i))}
          cols={[]}
          numbers={map}
          scale="diverging"
          max={1}
          axes={["position", "dimension"]}
        />
      </div>
      <Chart
        title="One position as a curve: cosines, fast to slow"
        x="i"
        y=""
        lines={curves.map(
          (row, n): Line => ({
            name: `pos = ${curve_positions[n]}`,
            tone: n ? "secondary" : "primary",
            points: row.filter((_, j) => j % 2).map((value, i) => [i, value]),
          }),
        )}
      />
    </>
  ),
  order: ({ with_positions, without_positions, floor }) => (
    <LossChart
      curves={[
        ["with positions", with_positions.curve],
        ["without positions", without_positions.curve],
      ]}
      reference={{ value: floor, name: "loss of a coin toss" }}
    />
  ),
  norms: ({ padded, batch, layer, names }) => (
    <>
      {(
        [
          ["batch norm (over columns)", batch],
          ["layer norm (over rows)", layer],
        ] as const
      ).map(([name, numbers]) => (
        <HeatMap
          key={name}
          name={name}
          rows={numbers.map((_, i) => `S${i + 1}`)}
          cols={names}
          numbers={numbers}
          scale="diverging"
          axes={["sample", "feature"]}
        />
      ))}
      <Chart
        title="Effect of zero padding on the real rows"
        x="rows of zeros"
        y="relative change"
        lines={twoLines(
          ["layer norm", padded.map((p) => [p.rows, p.layer_change])],
          ["batch norm", padded.map((p) => [p.rows, p.batch_change])],
        )}
      />
    </>
  ),
  encoder: ({ words, changed_index, attention_change, feed_forward_change }) => (
    <HeatMap
      name={`relative change when only “${words[changed_index]}” is changed`}
      rows={["attention", "feed-forward"]}
      cols={words}
      numbers={[attention_change, feed_forward_change]}
      axes={["sub-layer", "token"]}
    />
  ),
  mask: ({ words, weights, unmasked_weights }) => (
    <>
      <HeatMap name="weights with mask" rows={words} cols={words} numbers={weights} max={1} causal />
      <HeatMap name="weights without mask" rows={words} cols={words} numbers={unmasked_weights} max={1} />
    </>
  ),
  leak: ({ masked, unmasked, floor }) => (
    <LossChart
      curves={[
        ["with mask", masked.curve],
        ["without mask", unmasked.curve],
      ]}
      reference={{ value: floor, name: "loss of guessing the translation" }}
    />
  ),
  recurrent: ({ remembered }) => (
    <Chart
      title="What an exchanged word changes, if it was read first"
      x="words in the sentence"
      y="relative change"
      lines={[
        { name: "2014: one state", tone: "secondary", points: remembered.map((r) => [r.length, r.state]) },
        { name: "2015: attention", tone: "tertiary", points: remembered.map((r) => [r.length, r.attended]) },
        { name: "Transformer", tone: "primary", points: remembered.map((r) => [r.length, r.transformer]) },
      ]}
    />
  ),
  patches: ({ picture }) => (
    <>
      <HeatMap name="the picture" rows={[]} cols={[]} numbers={picture.pixels} axes={["", ""]} maxCellWidth={22} />
      {picture.words.map((word, i) =>
        ["a", "in", "row", "before"].includes(word) ? null : (
          <HeatMap
            key={i}
            name={`“${word}” attends to`}
            rows={[]}
            cols={[]}
            numbers={picture.attention[i]}
            axes={["row", "column"]}
            maxCellWidth={40}
          />
        ),
      )}
    </>
  ),
  learning: ({ moments, sentences }) => (
    <Chart
      title={`Largest attention of any head from “it” in “${sentences[0]}”`}
      x="step"
      y="weight"
      lines={twoLines(
        ["pizza", moments.map((m) => [m.step, m.to_food[0]])],
        ["oven", moments.map((m) => [m.step, m.to_place[0]])],
      )}
    />
  ),
  senses: ({ overall }) => (
    <Chart
      title="Cosine of two occurrences of a word"
      x=""
      y="mean cosine"
      isTight
      categories={overall.map(({ name }) => name)}
      lines={twoLines(
        ["same sense", overall.map((layer, i) => [i, layer.same])],
        ["different sense", overall.map((layer, i) => [i, layer.different])],
      )}
    />
  ),
};

function LossChart({
  curves,
  reference,
}: {
  curves: [[string, Curve], [string, Curve]];
  reference?: { value: number; name: string };
}) {
  const [[name1, curve1], [name2, curve2]] = curves;
  const lines = twoLines([name1, zip(curve1.steps, curve1.test)], [name2, zip(curve2.steps, curve2.test)]);
  return (
    <Chart
      title="Loss on unseen sentences"
      x="step"
      y="−ln p per token"
      log={{ y: true }}
      lines={lines}
      reference={reference}
    />
  );
}

/** The page's own figure of a lesson, or null. */
export function lessonFigure(lesson: string, result: Record<string, unknown>): ComponentChildren {
  const render = FIGURES[lesson as keyof LessonResults] as Render<typeof result> | undefined;
  return render ? <div class="lesson-figures">{render(result)}</div> : null;
}
