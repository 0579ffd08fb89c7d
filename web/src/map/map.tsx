// Map: the figure of the model with its real layers and sizes. Each box shows its own matrix for this sentence and opens its
// stage of Walk; Play lets the data flow through. A small version in the other views shows where one is.
import "./map.css";
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ModelConfig, ModelInfo, Trace } from "../api";
import {
  attentionGrid,
  attentions,
  findAttention,
  loadThumbnails,
  meanOverHeads,
  NUMBERING,
  selectedRow,
  stacks,
  tokenTexts,
  weightScale,
} from "../architecture";
import { latestValue, prefersReducedMotion, useAsync, useFontSize } from "../hooks";
import { useSpaceKey } from "../keyboard";
import type { Grid } from "../matrix/grid";
import { ColorScale, scaleText, Thumbnail } from "../matrix/matrix";
import { mediaKind, mediaName } from "../media/media";
import { ModelSelect, useSession, useTrace } from "../session";
import { loadPanel } from "../tensor-panel";
import { hasDevanagari, inLatin, transliterate } from "../transliteration";
import { hrefFor, navigate, useUrlState } from "../url-state";
import { type Box, boxesOf, drawFigure, type Frame, isCompact, type OpenLayers, pathOf, type Space, timeline } from "./layout";

const SPEEDS = [1, 2, 4, 8, 16]; // boxes per second

export function ModelMap() {
  const { model } = useSession();
  const trace = useTrace();
  const { row } = useUrlState();
  const config = model.config.model;
  const [open, setOpen] = useState<OpenLayers>({ encoder: 0, decoder: 0 });
  const [position, setPosition] = useState(-1); // in the timeline; −1: not played
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const rows = trace.target_tokens.length;
  const moments = useMemo(() => timeline(config, rows), [config, rows]);
  const moment = position >= 0 ? moments[position] : undefined;
  const lit = moment && boxesOf(config).find(({ stage }) => stage === moment.stage);

  useEffect(() => {
    setPosition(-1);
    setPlaying(false);
  }, [trace.id]);
  useEffect(() => {
    if (!playing) return;
    const timer = setTimeout(
      () => (position + 1 < moments.length ? setPosition(position + 1) : setPlaying(false)),
      1000 / SPEEDS[speed],
    );
    return () => clearTimeout(timer);
  }, [playing, position, speed, moments]);
  useEffect(() => {
    if (!moment || !lit) return;
    if (lit.layer >= 0) setOpen((before) => ({ ...before, [lit.column]: lit.layer }));
    if (moment.row >= 0) navigate({ row: moment.row });
    const box = document.querySelector(`[data-box="${moment.stage}"]`);
    const { top = 0, bottom = 0 } = box?.getBoundingClientRect() ?? {};
    if (top < 80 || bottom > innerHeight - 20)
      box?.scrollIntoView({ block: "nearest", behavior: prefersReducedMotion() ? "auto" : "smooth" });
  }, [moment]);

  const toggle = (): void => {
    if (!playing && position + 1 >= moments.length) setPosition(-1);
    setPlaying(!playing);
  };
  useSpaceKey(toggle);

  const produced = position < 0 || !rows ? selectedRow(trace, row) : moment!.row;
  return (
    <section class="card map-card">
      <div class="map-panel">
        <h2>How the text flows through the model</h2>
        <div class="controls">
          <button class="primary-button" title="play or pause (space)" onClick={toggle}>
            {playing ? "Pause" : "Play"}
          </button>
          <button
            class="chip"
            disabled={position < 0}
            onClick={() => setPosition(Math.max(-1, position - 1))}
            aria-label="one box back"
          >
            ←
          </button>
          <button
            class="chip"
            disabled={position + 1 >= moments.length}
            onClick={() => setPosition(position + 1)}
            aria-label="one box on"
          >
            →
          </button>
          <label class="map-speed small">
            speed
            <input
              type="range"
              min={0}
              max={SPEEDS.length - 1}
              value={speed}
              onInput={(event) => setSpeed(Number(event.currentTarget.value))}
            />
          </label>
        </div>
      </div>
      <div class="map-notes small">
        <p>Click a box to see how it is computed, a bar to open that layer.</p>
        <MapLegend model={model} trace={trace} />
        <About model={model} />
      </div>
      <ModelFigure trace={trace} open={open} onOpen={setOpen} lit={moment?.stage ?? ""} row={produced} />
    </section>
  );
}

/** What the thumbnails show, and how layers are numbered. */
function MapLegend({ model, trace }: { model: ModelInfo; trace: Trace }) {
  const keys = Math.max(trace.source_tokens.length, trace.decoder_input_tokens.length);
  return (
    <dl class="map-legend">
      <dt>Each picture is the box’s own matrix for this text: one row per token, each on its own scale</dt>
      <dd>
        <ColorScale scale="diverging" ends={["negative", "positive"]} />
      </dd>
      {attentions(model).length ? (
        <>
          <dt>
            Attention: how much each token (row) takes from each other (column)
            {model.config.model.heads > 1 ? ", mean over the heads" : ""}
          </dt>
          <dd>
            <ColorScale scale="sequential" ends={["0", weightScale(keys).max ? "1" : "largest"]} />
          </dd>
        </>
      ) : null}
      <dt>{NUMBERING}</dt>
    </dl>
  );
}

/** What this is: the choice of model, its languages, its size and training below them, and the tour. */
export function Opening({ tour }: { tour: ComponentChildren }) {
  const { models, model } = useSession();
  return (
    <header class="map-opening">
      {models.length > 1 ? <ModelSelect /> : null}
      <div>
        <h1>{models.length > 1 ? capitalized(purpose(model)) : `${model.name}: ${purpose(model)}`}</h1>
        <p class="small muted">
          {architectureName(model)}
          {trainedOn(model)}
        </p>
      </div>
      {tour}
    </header>
  );
}

const capitalized = (text: string): string => text[0].toUpperCase() + text.slice(1);

function About({ model: { about, config, parameters, scores } }: { model: ModelInfo }) {
  const training = scores.training as { steps?: number } | undefined;
  return (
    <details>
      <summary>About this model</summary>
      <p>
        {parameters.toLocaleString("en")} parameters, width {config.model.width}
        {training?.steps ? `, trained in ${training.steps.toLocaleString("en")} steps` : ""}. Every number on this page is
        computed by it for your {mediaName(config.model) ?? "text"}.{about ? ` ${about.limits}` : ""}
      </p>
    </details>
  );
}

const languageNames = new Intl.DisplayNames("en", { type: "language", fallback: "none" });
/** The language of a file such as train.hi. */
const languageOf = (files: readonly string[]): string => files[0]?.split(".").pop() ?? "";
const languageName = (code: string): string | undefined => (/^[a-z]{2,3}$/.test(code) ? languageNames.of(code) : undefined);

/** Such as "English → Hindi". */
function purpose({ kind, config, languages, about }: ModelInfo): string {
  if (kind === "language model") return "continues your text";
  if (kind === "encoder") return "turns your text into vectors";
  const media = mediaKind(config.model);
  if (media) return `reads ${media} and writes their text`;
  const [from, to] = (about?.languages ?? [languageOf(config.data.src), languageOf(config.data.tgt)]).map(languageName);
  if (from && to) return `${from} → ${to}`;
  return `a translator${languages ? ` of ${languages.codes.length} languages` : ""}`;
}

/** Such as "2+2 layers, 8 heads, a vocabulary of 1,901 tokens". */
function architectureName({ config, tokenizer }: ModelInfo): string {
  const { encoder_layers, decoder_layers, heads, kind } = config.model;
  const counts = { encoder: encoder_layers, decoder: decoder_layers };
  const layers = stacks(config.model)
    .map((stack) => counts[stack])
    .join("+"); // prettier-ignore
  const isTransformer = kind === "transformer";
  const parts = [
    `${layers} ${isTransformer ? "" : "recurrent "}${layers === "1" ? "layer" : "layers"}`,
    ...(isTransformer ? [`${heads} ${heads === 1 ? "head" : "heads"}`] : []),
  ];
  return [...parts, `a vocabulary of ${tokenizer.target_vocab_size.toLocaleString("en")} tokens`].join(", ");
}

const trainedOn = ({ config, about }: ModelInfo): string => {
  const { src, text, pictures, sounds } = config.data;
  const files = [...src, ...text, ...pictures, ...sounds].map((path) => path.split("/").pop());
  const [first, ...others] = about?.sources.length ? about.sources : files;
  return first ? `, trained on ${first}${others.length ? ` and ${others.length} more` : ""}` : "";
};

interface FigureProps {
  trace: Trace;
  open: OpenLayers;
  onOpen: (open: OpenLayers) => void;
  lit: string; // the key of the stage that is lit
  row: number;
}

function ModelFigure({ trace, open, onOpen, lit, row }: FigureProps) {
  const { model } = useSession();
  const config = model.config.model;
  const [container, space] = useSpace();
  const compact = isCompact(space);
  const { boxes, frames, arrows, width, height } = useMemo(() => drawFigure(config, open, space), [config, open, space]);
  const scroller = useRef<HTMLDivElement | null>(null);
  // Of a figure that is higher than the window, the end where the text enters is shown first.
  useLayoutEffect(() => {
    if (scroller.current) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [config, space]);
  const ref = useCallback((element: HTMLDivElement | null) => {
    scroller.current = element;
    container(element);
  }, []);
  return (
    <div class="map-scroll" ref={ref} style={{ maxHeight: `${Math.max(MIN_HEIGHT, space.height)}px` }}>
      {space.width ? (
        <div class={compact ? "map-figure compact" : "map-figure"} style={{ width: `${width}px`, height: `${height}px` }}>
          <svg class="map-lines" width={width} height={height} aria-hidden="true">
            {frames.map(({ column, x, y, width, height }) => (
              <rect key={column} class="map-frame" x={x} y={y} width={width} height={height} rx={12} />
            ))}
            {arrows.map((arrow, i) => (
              <path key={i} class={`map-arrow ${arrow.kind}`} d={pathOf(arrow)} />
            ))}
            {boxes.map((box) => arrowHead(box))}
          </svg>
          {frames.map((frame, i) => (
            <LayerBars
              key={frame.column}
              frame={frame}
              isLeft={frames.length > 1 && i === 0}
              onOpen={(layer) => onOpen({ ...open, [frame.column]: layer })}
            />
          ))}
          {boxes.map((box) => (
            <FigureBox
              key={box.stage}
              box={box}
              trace={trace}
              config={config}
              isLit={box.stage === lit}
              row={row}
              compact={compact}
            />
          ))}
        </div>
      ) : null}
    </div>
  );
}

const MIN_HEIGHT = 360; // pixels
const BELOW = 36; // pixels below the figure: the edges of the card and of the page

/** The width of an element, and the height from its top to the bottom of the window as the page opens. */
function useSpace(): [(element: HTMLElement | null) => void, Space] {
  const unit = useFontSize() / 12;
  const [element, setElement] = useState<HTMLElement | null>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    if (!element) return;
    const measure = (): void => {
      const [width, height] = [
        element.clientWidth,
        Math.round(innerHeight - element.getBoundingClientRect().top - scrollY - BELOW),
      ];
      setSize((old) => (old.width === width && old.height === height ? old : { width, height }));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element.parentElement!);
    observer.observe(document.body);
    addEventListener("resize", measure);
    measure();
    return () => {
      observer.disconnect();
      removeEventListener("resize", measure);
    };
  }, [element]);
  return [setElement, useMemo(() => ({ ...size, height: Math.max(MIN_HEIGHT, size.height), unit }), [size, unit])];
}

function arrowHead({ stage, kind, x, y, width, height }: Box) {
  if (kind === "tokens") return null;
  const [tip, bottom] = [x + width / 2, y + height];
  return <path key={stage} class="map-arrow-head" d={`M${tip - 4} ${bottom + 6}L${tip} ${bottom}L${tip + 4} ${bottom + 6}`} />;
}

/** The closed layers as bars that open them; the open one and the number of layers are named beside the frame. */
function LayerBars({ frame, isLeft, onOpen }: { frame: Frame; isLeft: boolean; onOpen: (layer: number) => void }) {
  const beside = isLeft ? { right: `calc(100% - ${frame.x - 2}px)` } : { left: `${frame.x + frame.width + 2}px` };
  return (
    <>
      <span class="map-layer small" style={{ ...beside, top: `${frame.openY}px`, height: `${frame.openHeight}px` }}>
        {frame.column} layer {frame.open}
        {frame.count > 1 ? ` (of ${frame.count})` : ""}
      </span>
      {frame.bars.map(({ layer, x, y, width, height }) => (
        <button
          key={layer}
          class="map-bar"
          style={{ left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` }}
          onClick={() => onOpen(layer)}
          aria-label={`open ${frame.column} layer ${layer}`}
        >
          layer {layer}
        </button>
      ))}
    </>
  );
}

interface FigureBoxProps {
  box: Box;
  trace: Trace;
  config: ModelConfig;
  isLit: boolean;
  row: number;
  compact: boolean; // without thumbnails
}

function FigureBox({ box, trace, config, isLit, row, compact }: FigureBoxProps) {
  const { x, y, width, height, stage, kind, title, layer, column } = box;
  const attention = kind === "attention" ? box.group : undefined;
  const place = layer >= 0 ? `, ${column} layer ${layer}` : config.shape === "encoder-decoder" ? `, ${column}` : "";
  const text = textIn(box, trace, row);
  return (
    <a
      class={`map-box map-${kind}${isLit ? " lit" : ""}`}
      style={{ left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` }}
      href={hrefFor({ view: "walk", stage, cell: "", ...(attention ? { attention } : {}) })}
      aria-label={`${`${title} ${text}`.trim()}${place}: open in Walk`}
      title={kind === "tokens" && text ? text + inLatin(text) : undefined}
      aria-current={isLit ? "step" : undefined}
      data-box={stage}
    >
      <span class="map-title">{compact ? title.replace("masked self-", "masked ") : title}</span>{" "}
      {compact && box.tensor ? null : <BoxContent box={box} trace={trace} row={row} />}
    </a>
  );
}

/** The text in a box: its tokens, or the next one. */
function textIn({ kind, column, stage }: Box, trace: Trace, row: number): string {
  if (kind === "tokens") return tokenTexts(column === "encoder" ? trace.source_tokens : trace.decoder_input_tokens).join(" ");
  return stage === "next" && row >= 0 ? (trace.target_tokens[row]?.text ?? "") : "";
}

function BoxContent({ box, trace, row }: { box: Box; trace: Trace; row: number }) {
  const { model } = useSession();
  const loaded = useAsync(box.tensor ? () => loadGrid(model, trace, box) : null, [trace.id, box.tensor]);
  const text = textIn(box, trace, row);
  if (box.kind === "tokens") return <span class="map-text">{text}</span>;
  if (box.stage === "next")
    return (
      <span class="map-text">
        {hasDevanagari(text) ? <span class="latin" lang="hi-Latn" data-latin={transliterate(text)} /> : null} <b>{text}</b>
      </span>
    );
  const grid = latestValue(loaded);
  return grid ? <Thumbnail grid={grid} title={`scale ${scaleText(grid)}`} /> : null;
}

/** The matrix of a box; of an attention, the mean over its heads. */
async function loadGrid(model: ModelInfo, trace: Trace, { kind, group, tensor: name }: Box): Promise<Grid> {
  if (kind !== "attention") return (await loadPanel(model, trace, name, 0)).grid;
  const attention = findAttention(model, group)!;
  const weights = await loadThumbnails(trace, attention);
  return attentionGrid(trace, attention, "weights", weights.shape[0] > 1 ? meanOverHeads(weights) : weights.at(0), name);
}
