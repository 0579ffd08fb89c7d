// Space: the embeddings of the vocabulary, sums of words, and the user's words on their way through the layers, as points in two
// or three dimensions. The server projects them; all vectors are unit vectors as seen from the mean embedding.
import "./space.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import {
  type ModelInfo,
  type NearestEmbeddings,
  type PlacedArithmetic,
  type PlacedToken,
  type Space as SpaceData,
  source,
  type Trace,
} from "../../api";
import { rowLabels } from "../../architecture";
import { formatNumber, formatPercent } from "../../format";
import { latestValue, prefersReducedMotion, useAsync } from "../../hooks";
import { useSpaceKey } from "../../keyboard";
import { explainOptions, useSession, useTrace } from "../../session";
import { inLatin } from "../../transliteration";
import { ErrorMessage, Loading, SegmentedControl, Transliterated } from "../../ui";
import { navigate, useUrlState } from "../../url-state";
import { TextField } from "../controls";
import { NeedsModel } from "../intervene";
import { type Line, type Mark, Scatter } from "./scatter";
import { type Point, pointAt } from "./scene";

type Stack = "encoder" | "decoder";
type Scene = "vocabulary" | "words" | "layers";

const SCENES = [
  ["vocabulary", "Vocabulary"],
  ["words", "Sums of words"],
  ["layers", "Through the layers"],
] as const;
const STACKS = [
  ["encoder", "encoder"],
  ["decoder", "decoder"],
] as const;

/** Shown if the model knows all their words. */
const EXAMPLES = [
  "went − go + come",
  "his − he + she",
  "king − man + woman",
  "eating − eat + sing",
  "लाती − लाता + जाता",
  "थी − था + गया",
];
const LAYER_TIME = 700; // ms from one layer to the next

const DESCRIPTIONS: Record<Scene, string> = {
  vocabulary:
    "One point per token of the vocabulary: its embedding, before any context. The words of your text are highlighted.",
  words: "Add and subtract the embeddings of words. If a direction has a meaning, the sum ends near the word you expect.",
  layers:
    "Each word of your text starts at its embedding and moves as every layer adds what the word needs to know of the others.",
};

export function Space() {
  const { model } = useSession();
  const trace = useTrace();
  if (!source.live) return <NeedsModel view="Space" reason="Space computes with the embeddings of the model" />;
  return <SpaceView model={model} trace={trace} />;
}

/** The trace of a second text beside the first, if one is given. */
function useSecondTrace(model: ModelInfo): { second: Trace | null; error: Error | null } {
  const state = useUrlState();
  const text = state.text2.trim();
  const loaded = useAsync(text ? (signal) => source.explain(explainOptions(state, model, text), signal) : null, [
    model.name,
    text,
  ]);
  return {
    second: text && loaded.state === "ready" ? loaded.value : null,
    error: text && loaded.state === "failed" ? loaded.error : null,
  };
}

function SpaceView({ model, trace }: { model: ModelInfo; trace: Trace }) {
  const state = useUrlState();
  const { has_encoder: hasEncoder, has_decoder: hasDecoder } = stacksOf(model);
  const stack: Stack = !hasEncoder ? "decoder" : !hasDecoder ? "encoder" : state.stack === "decoder" ? "decoder" : "encoder";
  const scene = (SCENES.some(([key]) => key === state.space) ? state.space : "vocabulary") as Scene;
  const { second, error: secondError } = useSecondTrace(model);
  const [known, setKnown] = useState<{ key: string; words: readonly string[] }>({ key: "", words: [] });
  const vocabularyKey = `${model.name} ${stack}`;
  const examples =
    known.key === vocabularyKey
      ? EXAMPLES.filter((example) => example.split(/ [+−] /).every((word) => known.words.includes(word)))
      : [];
  const tokens = stack === "encoder" ? trace.source_tokens : trace.decoder_input_tokens;
  const firstWord = known.key === vocabularyKey ? tokens.find(({ text }) => known.words.includes(text))?.text : undefined;
  const words =
    state.words.trim() || (scene === "layers" ? "" : ((scene === "words" ? examples[0] : undefined) ?? firstWord ?? ""));
  const method = scene === "vocabulary" && state.placement === "tsne" ? "tsne" : "pca";
  const traces = [trace.id, ...(second ? [second.id] : [])];
  const loaded = useAsync(
    (signal) =>
      source
        .space({ model: model.name, stack, fit: scene, method, traces, words }, signal)
        .then((data) => ({ data, scene, stack, model: model.name })),
    [model.name, stack, scene, method, traces.join(), words],
  );
  const latest = latestValue(loaded);
  const current = latest && latest.stack === stack && latest.model === model.name ? latest : undefined;
  useEffect(() => {
    if (current && known.key !== vocabularyKey) setKnown({ key: vocabularyKey, words: current.data.tokens });
  }, [current]);
  const dimensions = state.dimensions === 3 && method === "pca" ? 3 : 2;
  return (
    <section class="card stack">
      <div class="section-header flush">
        <div>
          <h2>Words as points</h2>
          <p class="muted small description">{DESCRIPTIONS[scene]}</p>
        </div>
        <div class="controls">
          <SegmentedControl label="what to show" options={SCENES} value={scene} onChange={(space) => navigate({ space })} />
          {hasEncoder && hasDecoder ? (
            <SegmentedControl
              label="whose vectors"
              options={STACKS}
              value={stack}
              onChange={(next) => navigate({ stack: next, position: 0, words: "" })}
            />
          ) : null}
          <SegmentedControl
            label="dimensions"
            options={
              [
                ["2", "2-D"],
                ["3", "3-D"],
              ] as const
            }
            value={dimensions === 3 ? "3" : "2"}
            onChange={(next) => navigate({ dimensions: Number(next), ...(next === "3" ? { placement: "pca" } : {}) })}
          />
          {scene === "vocabulary" && current?.data.methods.includes("tsne") ? (
            <SegmentedControl
              label="projection"
              options={
                [
                  ["pca", "PCA"],
                  ["tsne", "t-SNE"],
                ] as const
              }
              value={method}
              onChange={(placement) => navigate({ placement })}
            />
          ) : null}
        </div>
      </div>
      {loaded.state === "failed" ? <ErrorMessage error={loaded.error} /> : null}
      {secondError ? <ErrorMessage error={secondError} /> : null}
      {current ? (
        <Picture
          {...current}
          {...{ words, examples, dimensions }}
          traces={[trace, ...(second ? [second] : [])]}
          busy={loaded.state === "loading"}
        />
      ) : loaded.state === "failed" ? null : (
        <Loading what={method === "tsne" ? "t-SNE, which takes some seconds," : "vectors"} />
      )}
    </section>
  );
}

const stacksOf = ({ config }: ModelInfo) => ({
  has_encoder: config.model.shape !== "decoder",
  has_decoder: config.model.shape !== "encoder",
});

interface PictureProps {
  stack: Stack;
  scene: Scene;
  data: SpaceData;
  traces: readonly Trace[];
  words: string;
  examples: readonly string[];
  dimensions: number;
  busy: boolean;
}

function Picture({ stack, scene, data, traces, words, examples, dimensions, busy }: PictureProps) {
  const state = useUrlState();
  const { layers, arithmetic } = data;
  const paths = scene === "layers" ? namedRows(data.paths, traces, stack) : data.paths;
  const last = layers.length - 1;
  const layer = state.layer >= 0 && state.layer <= last ? state.layer : last;
  const shownLayer = useMovingLayer(layer);
  const position = Math.min(Math.max(0, state.position), Math.max(0, paths.length - 1));
  const token = paths[position] as PlacedToken | undefined;
  const loaded = useAsync(
    scene === "layers" && token ? () => source.nearestEmbeddings(token.trace, stack, token.position) : null,
    [scene, token?.trace, stack, token?.position],
  );
  const nearest = latestValue(loaded);
  const near = nearest?.layers[layer]?.neighbors.slice(0, 3).map(({ id }) => id) ?? [];
  const { marks, lines, framed } = useMemo(
    () =>
      scene === "layers"
        ? layersPicture({ ...data, paths }, traces, position, Math.min(shownLayer, last), near)
        : scene === "words"
          ? wordsPicture(data)
          : vocabularyPicture(data, traces),
    [data, scene, position, shownLayer, near.join()],
  );
  const select = (key: string): void => {
    const [kind, index] = key.split(" ");
    if (kind === "token") navigate({ position: Number(index) });
    else if (kind === "word") navigate({ words: data.tokens[data.ids.indexOf(Number(index))] ?? "" });
  };
  const insight =
    scene === "layers"
      ? nearest && token && layersInsight(nearest, stack === "decoder" ? writtenBy(token, traces) : "")
      : arithmetic && wordsInsight(arithmetic);
  const variance = data.variance_ratios.slice(0, dimensions).reduce((a, b) => a + b, 0);
  const description = describe(scene, { ...data, paths }, token, layer);
  return (
    <>
      {insight ? (
        <p class="space-insight" data-insight={insight}>
          {insight}
        </p>
      ) : null}
      {scene === "layers" ? <LayerPlayer layers={layers} layer={layer} /> : null}
      <div class={`space-columns${busy ? " busy" : ""}`}>
        <div class="stack">
          <Scatter {...{ marks, lines, framed, dimensions, description }} name={`${scene} ${stack}`} onSelect={select} />
          <p class="small muted">
            {data.variance_ratios.length
              ? `The ${dimensions} principal axes hold ${formatPercent(variance)} of the variance of ${scene === "layers" ? "these vectors" : scene === "words" ? "the words and their neighbours" : "the embeddings"}: what looks near need not be. The cosines are computed with all dimensions.`
              : "t-SNE keeps neighbours together; distances and directions between groups have no meaning."}
            {data.ids.length < data.vocabulary_size
              ? ` Shown: ${data.ids.length.toLocaleString("en")} of ${data.vocabulary_size.toLocaleString("en")} tokens.`
              : ""}
          </p>
        </div>
        <div class="stack">
          {scene === "layers" ? (
            <>
              <TokenChips paths={paths} traces={traces} selected={position} />
              {loaded.state === "failed" ? (
                <ErrorMessage error={loaded.error} />
              ) : nearest ? (
                <LayerTable nearest={nearest} name={token!.text} layer={layer} />
              ) : (
                <Loading what="neighbours" />
              )}
              <TextField
                label="a second text, to compare the same word in two contexts"
                value={state.text2}
                onChange={(text2) => navigate({ text2: text2.trim() ? text2 : "" })}
              />
            </>
          ) : (
            <Words {...{ words, examples, arithmetic }} tokens={scene === "vocabulary" ? paths : []} />
          )}
        </div>
      </div>
    </>
  );
}

/** Follows the selected layer gradually, so that one sees where each word goes. */
function useMovingLayer(layer: number): number {
  const [shown, setShown] = useState(layer);
  const from = useRef(layer);
  useEffect(() => {
    if (prefersReducedMotion()) return setShown(layer);
    const [start, begin] = [from.current, performance.now()];
    let request = 0;
    const step = (now: number): void => {
      const share = Math.min(1, (now - begin) / LAYER_TIME);
      from.current = start + (layer - start) * (1 - (1 - share) ** 3);
      setShown(from.current);
      if (share < 1) request = requestAnimationFrame(step);
    };
    request = requestAnimationFrame(step);
    return () => cancelAnimationFrame(request);
  }, [layer]);
  return shown;
}

/** The rows of the texts, those of a decoder by what they read and write. */
const namedRows = (paths: readonly PlacedToken[], traces: readonly Trace[], stack: Stack): PlacedToken[] =>
  paths.map((token) => {
    const trace = traces.find(({ id }) => id === token.trace);
    return { ...token, text: (trace && rowLabels(trace, stack)[token.position]) ?? token.text };
  });

const toneOf = (token: PlacedToken, traces: readonly Trace[]): "first" | "second" =>
  token.trace === traces[0].id ? "first" : "second";

/** The vocabulary behind the marks of a picture. */
function withVocabulary(marks: readonly Mark[], { ids, tokens, points }: SpaceData, quiet: boolean): Mark[] {
  const taken = new Set(marks.map(({ key }) => key));
  const others = ids.map((id, i): Mark => ({ key: `word ${id}`, label: tokens[i], point: points[i], tone: "word", quiet }));
  return [...marks, ...others.filter(({ key }) => !taken.has(key))];
}

interface PictureParts {
  marks: Mark[];
  lines: Line[];
  framed: Point[];
}

function vocabularyPicture(data: SpaceData, traces: readonly Trace[]): PictureParts {
  const { ids, points, paths, arithmetic } = data;
  const own = [...new Map(paths.map((token) => [token.id, token])).values()].flatMap((token): Mark[] => {
    const point = points[ids.indexOf(token.id)];
    return point ? [{ key: `word ${token.id}`, label: token.text, point, tone: toneOf(token, traces), strong: true }] : [];
  });
  const near = arithmeticMarks(arithmetic).filter(({ key }) => !own.some((mark) => mark.key === key));
  return { marks: withVocabulary([...own, ...near], data, false), lines: [], framed: points };
}

function arithmeticMarks(arithmetic: PlacedArithmetic | null): Mark[] {
  if (!arithmetic) return [];
  const terms = arithmetic.terms.flatMap(({ word, ids, point }): Mark[] =>
    point ? [{ key: `word ${ids[0]}`, label: word, point, tone: "first", strong: true }] : [],
  );
  const near = arithmetic.neighbors.flatMap(({ id, token, point }): Mark[] =>
    point ? [{ key: `word ${id}`, label: token, point, tone: "near" }] : [],
  );
  return [...terms, ...near];
}

/** The terms one after the other: plus goes there, minus goes back; the end of the last arrow is the sum. */
function wordsPicture(data: SpaceData): PictureParts {
  const { arithmetic, points } = data;
  const marks = arithmeticMarks(arithmetic);
  if (!arithmetic?.point) return { marks: withVocabulary(marks, data, false), lines: [], framed: points };
  const { terms, point: sum } = arithmetic;
  const lines: Line[] = [];
  const [a, b, c] = terms;
  const result: Mark[] = [];
  if (terms.length > 1) {
    result.push({
      key: "sum",
      label: terms.map(({ word, sign }, i) => `${i || sign < 0 ? `${sign < 0 ? "−" : "+"} ` : ""}${word}`).join(" "),
      point: sum,
      tone: "second",
      strong: true,
    });
    if (terms.length === 3 && a.sign > 0 && b.sign < 0 && c.sign > 0 && a.point && b.point && c.point) {
      // a − b is the arrow from b to a; drawn again from c, it leads to the sum.
      lines.push(
        { points: [b.point, a.point], tone: "first", kind: "arrow" },
        { points: [c.point, sum], tone: "second", kind: "arrow" },
      );
      lines.push(
        { points: [b.point, c.point], tone: "first", kind: "dashed" },
        { points: [a.point, sum], tone: "first", kind: "dashed" },
      );
    }
  }
  const all = [...result, ...marks];
  return { marks: withVocabulary(all, data, true), lines, framed: all.map(({ point }) => point) };
}

const MAX_PATHS = 24; // of unselected tokens

function layersPicture(
  data: SpaceData,
  traces: readonly Trace[],
  selected: number,
  layer: number,
  near: readonly number[],
): PictureParts {
  const { paths, ids, points, tokens } = data;
  const own = paths.map(
    (token, i): Mark => ({
      key: `token ${i}`,
      label: token.text,
      point: pointAt(token.path, layer),
      tone: toneOf(token, traces),
      strong: i === selected,
    }),
  );
  own.sort((a, b) => Number(b.strong) - Number(a.strong));
  const lines = paths.map((token, i): Line => {
    const walked = [...token.path.slice(0, Math.floor(layer) + 1), pointAt(token.path, layer)];
    return { points: walked, tone: toneOf(token, traces), kind: i === selected ? "path" : "faint" };
  });
  const neighbors = near.flatMap((id): Mark[] => {
    const i = ids.indexOf(id);
    return i < 0 ? [] : [{ key: `word ${id}`, label: tokens[i], point: points[i], tone: "near" }];
  });
  return {
    marks: withVocabulary([...own, ...neighbors], data, true),
    lines: lines.filter(({ kind }) => kind === "path" || lines.length <= MAX_PATHS),
    framed: [...paths.flatMap(({ path }) => path), ...neighbors.map(({ point }) => point)],
  };
}

function describe(
  scene: Scene,
  { arithmetic, paths, layers }: SpaceData,
  token: PlacedToken | undefined,
  layer: number,
): string {
  if (scene === "layers")
    return `${paths.length} words at ${layerTitle(layers[layer])}; selected: ${token?.text ?? "none"}. The table beside it lists what is nearest at each layer.`;
  const near = arithmetic?.neighbors.slice(0, 5).map(({ token, cosine }) => `${token} ${formatNumber(cosine)}`);
  const words = arithmetic?.terms.map(({ word, sign }) => `${sign < 0 ? "minus" : "plus"} ${word}`).join(" ");
  return near
    ? `Nearest to ${words}: ${near.join(", ")}.`
    : "The embeddings of the vocabulary as points. Enter a word to list its neighbours.";
}

/** The token that the model wrote after reading this one. */
const writtenBy = (token: PlacedToken, traces: readonly Trace[]): string =>
  traces.find(({ id }) => id === token.trace)?.target_tokens[token.position]?.text ?? "";

const quoted = (text: string): string => `“${text}”${inLatin(text)}`;

/** What one sees of a word on its way through the layers. */
export function layersInsight({ token, layers }: NearestEmbeddings, written: string): string {
  const [first, last] = [layers[0]?.neighbors[0], layers[layers.length - 1]?.neighbors[0]];
  if (!first || !last) return "";
  const start = `The vector of ${quoted(token)} starts at ${first.token === token ? "its own embedding" : `the embedding nearest to ${quoted(first.token)}`}`;
  const end = `(cosine ${formatNumber(last.cosine)})`;
  if (first.token === last.token)
    return `${start}, and after the last layer that is still the nearest one ${end}: the context has moved it, but not to another word.`;
  return `${start}; after the last layer it is nearest to ${quoted(last.token)} ${end}${last.token === written ? ", the very token that the model writes next" : ""}.`;
}

/** What one sees of a word or a sum of words. */
export function wordsInsight({ terms, neighbors }: Pick<PlacedArithmetic, "terms" | "neighbors">): string {
  const [first, second] = neighbors;
  if (!first) return "";
  const name = terms.map(({ word, sign }, i) => `${i ? (sign < 0 ? " − " : " + ") : sign < 0 ? "− " : ""}${word}`).join("");
  return `${quoted(name)} lies nearest to ${quoted(first.token)}: cosine ${formatNumber(first.cosine)}${second ? `; then to ${quoted(second.token)}: ${formatNumber(second.cosine)}` : ""}.`;
}

/** decoder.1.feed_forward.sum is layer 1. */
function layerTitle(name: string): string {
  const [, part] = name.split(".");
  if (/^\d+$/.test(part)) return `layer ${part}`;
  return part === "embedded" ? "embedding" : part === "input" ? "with position" : "final norm";
}

function LayerPlayer({ layers, layer }: { layers: readonly string[]; layer: number }) {
  const [playing, setPlaying] = useState(false);
  const last = layers.length - 1;
  useEffect(() => {
    if (!playing) return;
    if (layer === last) return setPlaying(false);
    const timer = setTimeout(() => navigate({ layer: layer + 1 }), LAYER_TIME * 1.5);
    return () => clearTimeout(timer);
  }, [playing, layer]);
  const toggle = (): void => {
    if (prefersReducedMotion()) return navigate({ layer: (layer + 1) % layers.length });
    if (!playing && layer === last) navigate({ layer: 0 });
    setPlaying(!playing);
  };
  useSpaceKey(toggle);
  return (
    <div class="space-player">
      <button class="primary-button" title="play or pause (space)" onClick={toggle}>
        {prefersReducedMotion() ? "Next" : playing ? "Pause" : "Play"}
      </button>
      <input
        type="range"
        aria-label="layer"
        min={0}
        max={last}
        step={1}
        value={layer}
        aria-valuetext={layerTitle(layers[layer])}
        onInput={(event) => {
          setPlaying(false);
          navigate({ layer: Number(event.currentTarget.value) });
        }}
      />
      <output>{layerTitle(layers[layer])}</output>
    </div>
  );
}

function TokenChips({
  paths,
  traces,
  selected,
}: {
  paths: readonly PlacedToken[];
  traces: readonly Trace[];
  selected: number;
}) {
  return (
    <div class="space-tokens" role="group" aria-label="words of the text">
      {paths.map((token, i) => (
        <button
          key={i}
          class={`chip ${toneOf(token, traces)}`}
          aria-pressed={i === selected}
          onClick={() => navigate({ position: i })}
        >
          <Transliterated text={token.text} />
        </button>
      ))}
    </div>
  );
}

/** What a token's vector is nearest to, layer by layer. */
function LayerTable({ nearest, name, layer }: { nearest: NearestEmbeddings; name: string; layer: number }) {
  return (
    <div>
      <h3>
        <Transliterated text={`“${name}” is nearest to …`} />
      </h3>
      <table class="layer-table small" data-path={nearest.token}>
        <thead>
          <tr>
            <th scope="col">after</th>
            <th scope="col">embeddings in the vocabulary, by cosine</th>
          </tr>
        </thead>
        <tbody>
          {nearest.layers.map(({ layer: name, neighbors }, i) => (
            <tr key={name} aria-current={i === layer ? "true" : undefined} onClick={() => navigate({ layer: i })}>
              <th scope="row" class="muted">
                {layerTitle(name)}
              </th>
              <td>
                {neighbors.slice(0, 3).map(({ token: word, cosine }, rank) => (
                  <span key={rank}>
                    {rank ? ", " : ""}
                    {rank ? (
                      <Transliterated text={word} />
                    ) : (
                      <b>
                        <Transliterated text={word} />
                      </b>
                    )}{" "}
                    <span class="muted">{formatNumber(cosine)}</span>
                  </span>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface WordsProps {
  words: string;
  examples: readonly string[];
  arithmetic: PlacedArithmetic | null;
  tokens: readonly PlacedToken[]; // whose words are suggested
}

function Words({ words, examples, arithmetic, tokens }: WordsProps) {
  const own = [...new Set(tokens.map(({ text }) => text))].filter((text) => !text.startsWith("<")).slice(0, 12);
  return (
    <>
      <TextField
        label="nearest to a word, or to a sum such as king − man + woman"
        value={words}
        placeholder="a word"
        onChange={(next) => navigate({ words: next.trim() ? next.replaceAll(" - ", " − ") : "" })}
      />
      <div class="examples">
        {[...own, ...examples].map((example) => (
          <button key={example} class="chip" aria-pressed={example === words} onClick={() => navigate({ words: example })}>
            <Transliterated text={example} />
          </button>
        ))}
      </div>
      {arithmetic ? (
        <div>
          <h3>Nearest embeddings</h3>
          <p class="small muted">
            by cosine, seen from the mean embedding
            {arithmetic.terms.length > 1 ? "; the words of the sum themselves are left out" : ""}
            {arithmetic.terms
              .filter(({ ids }) => ids.length > 1)
              .map(({ word, ids }) => `; “${word}” is the mean of ${ids.length} tokens`)}
          </p>
          <ol class="neighbors" aria-label="nearest embeddings">
            {arithmetic.neighbors.map(({ id, token, cosine }) => (
              <li key={id}>
                <button onClick={() => navigate({ words: token })} data-neighbor={token} data-cosine={cosine}>
                  <span class="name">
                    <Transliterated text={token} />
                  </span>
                  <span class="meter">
                    <i style={{ width: `${Math.max(0, cosine) * 100}%` }} />
                  </span>
                  <span class="value small muted">{formatNumber(cosine)}</span>
                </button>
              </li>
            ))}
          </ol>
        </div>
      ) : null}
    </>
  );
}
