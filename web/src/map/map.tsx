// Map: the figure of the model with its real layers and sizes. Each box shows its own matrix for this sentence and opens its
// stage of Walk; Play lets the data flow through. A small version in the other views shows where one is.
import "./map.css";
import { useEffect, useMemo, useState } from "preact/hooks";
import { tensor, type ModelConfig, type ModelInfo, type Trace } from "../api";
import { attentionGrid, findAttention, meanOverHeads, selectedRow, stacks, tokenTexts } from "../architecture";
import { latestValue, prefersReducedMotion, useAsync, useWidth } from "../hooks";
import { useSpaceKey } from "../keyboard";
import type { Grid } from "../matrix/grid";
import { Thumbnail } from "../matrix/matrix";
import { mediaKind, mediaName } from "../media/media";
import { chooseModel, useSession, useTrace } from "../session";
import { loadPanel } from "../tensor-panel";
import { hrefFor, navigate, useUrlState } from "../url-state";
import { boxesOf, drawFigure, pathOf, timeline, type Box, type Frame, type OpenLayers } from "./layout";

const COMPACT_BELOW = 620; // pixels
const SPEEDS = [1, 2, 4, 8, 16]; // boxes per second

export function Map() {
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
    const timer = setTimeout(() => (position + 1 < moments.length ? setPosition(position + 1) : setPlaying(false)), 1000 / SPEEDS[speed]);
    return () => clearTimeout(timer);
  }, [playing, position, speed, moments]);
  useEffect(() => {
    if (!moment || !lit) return;
    if (lit.layer >= 0) setOpen((before) => ({ ...before, [lit.column]: lit.layer }));
    if (moment.row >= 0) navigate({ row: moment.row });
    const box = document.querySelector(`[data-box="${moment.stage}"]`);
    const { top = 0, bottom = 0 } = box?.getBoundingClientRect() ?? {};
    if (top < 80 || bottom > innerHeight - 20) box?.scrollIntoView({ block: "center", behavior: prefersReducedMotion() ? "auto" : "smooth" });
  }, [moment]);

  const toggle = (): void => {
    if (!playing && position + 1 >= moments.length) setPosition(-1);
    setPlaying(!playing);
  };
  useSpaceKey(toggle);

  const produced = position < 0 || !rows ? selectedRow(trace, row) : moment!.row;
  return (
    <div class="stack">
      <section class="card stack">
        <div class="section-header flush">
          <h2>How the text flows through the model</h2>
          <div class="controls">
            <button class="chip active" onClick={toggle}>
              {playing ? "Pause" : "Play"}
            </button>
            <button class="chip" disabled={position < 0} onClick={() => setPosition(Math.max(-1, position - 1))} aria-label="one box back">
              ←
            </button>
            <button class="chip" disabled={position + 1 >= moments.length} onClick={() => setPosition(position + 1)} aria-label="one box on">
              →
            </button>
            <label class="map-speed small">
              speed
              <input type="range" min={0} max={SPEEDS.length - 1} value={speed} onInput={(event) => setSpeed(Number(event.currentTarget.value))} />
            </label>
          </div>
        </div>
        <p class="muted small">
          Each box shows its own numbers for this text, one row per token. Click a box to see how it is computed; click a bar to open that layer.
        </p>
        <ModelFigure trace={trace} open={open} onOpen={setOpen} lit={moment?.stage ?? ""} row={produced} />
      </section>
    </div>
  );
}

/** What this is: the languages, the size and the training of the model, and the other models to choose from. */
export function Opening() {
  const { models, model } = useSession();
  const { parameters, scores } = model;
  const training = scores.training as { steps?: number } | undefined;
  return (
    <header class="map-opening">
      <h1>{purpose(model)}</h1>
      <p class="muted">
        {architectureName(model)}, {parameters.toLocaleString("en")} parameters
        {training?.steps ? `, trained in ${training.steps.toLocaleString("en")} steps${trainedOn(model)}` : ""}. Every number on this page is computed by it for the {mediaName(model.config.model) ?? "text"} below.
        {model.about ? ` ${model.about.limits}` : ""}
      </p>
      {models.length > 1 ? (
        <div class="examples" role="group" aria-label="models">
          {models.map(({ name }) => (
            <button key={name} class="chip" aria-pressed={name === model.name} onClick={() => chooseModel(name)}>
              {name}
            </button>
          ))}
        </div>
      ) : null}
    </header>
  );
}

const languageNames = new Intl.DisplayNames("en", { type: "language", fallback: "none" });
/** The language of a file such as train.hi. */
const languageOf = (files: readonly string[]): string => files[0]?.split(".").pop() ?? "";
const languageName = (code: string): string | undefined => (/^[a-z]{2,3}$/.test(code) ? languageNames.of(code) : undefined);

/** Such as "A translator, English → Hindi". */
function purpose({ kind, name, config, languages, about }: ModelInfo): string {
  if (kind === "language model") return `${name}: a language model, which continues your text`;
  if (kind === "encoder") return `${name}: an encoder, which turns your text into vectors`;
  const media = mediaKind(config.model);
  if (media) return `${name}: reads ${media} and writes their text`;
  const [from, to] = (about?.languages ?? [languageOf(config.data.src), languageOf(config.data.tgt)]).map(languageName);
  if (from && to) return `${name}: a translator, ${from} → ${to}`;
  return `${name}: a translator${languages ? ` of ${languages.codes.length} languages` : ""}`;
}

function architectureName({ config, tokenizer }: ModelInfo): string {
  const { encoder_layers, decoder_layers, heads, width, kind } = config.model;
  const counts = { encoder: encoder_layers, decoder: decoder_layers };
  const layers = stacks(config.model).map((stack) => `${counts[stack]} ${stack}`).join(" + "); // prettier-ignore
  const isTransformer = kind === "transformer";
  const headCount = isTransformer ? ` of ${heads} ${heads === 1 ? "head" : "heads"}` : "";
  return `${isTransformer ? "Transformer" : "Recurrent network"}: ${layers} layers${headCount}, width ${width}, ${tokenizer.target_vocab_size.toLocaleString("en")} tokens`;
}

const trainedOn = ({ config, about }: ModelInfo): string => {
  if (about?.sources.length) return ` (data: ${about.sources.join(", ")})`;
  const { src, text, pictures, sounds } = config.data;
  const files = [...src, ...text, ...pictures, ...sounds].map((path) => path.split("/").pop());
  return files.length ? ` on ${files[0]}${files.length > 1 ? ` and ${files.length - 1} more` : ""}` : "";
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
  const [container, available] = useWidth<HTMLDivElement>();
  const isCompact = available > 0 && available < COMPACT_BELOW;
  const { boxes, frames, arrows, width, height } = useMemo(() => drawFigure(config, open, isCompact), [config, open, isCompact]);
  return (
    <div class="map-scroll" ref={container}>
      <div class={isCompact ? "map-figure compact" : "map-figure"} style={{ width: `${width}px`, height: `${height}px` }}>
        <svg class="map-lines" width={width} height={height} aria-hidden="true">
          {frames.map(({ column, x, y, width, height }) => (
            <rect key={column} class="map-frame" x={x} y={y} width={width} height={height} rx={12} />
          ))}
          {arrows.map((arrow, i) => (
            <path key={i} class={`map-arrow ${arrow.kind}`} d={pathOf(arrow)} />
          ))}
          {boxes.map((box) => arrowHead(box))}
        </svg>
        {frames.map((frame) => (
          <LayerBars key={frame.column} frame={frame} onOpen={(layer) => onOpen({ ...open, [frame.column]: layer })} />
        ))}
        {boxes.map((box) => (
          <FigureBox key={box.stage} box={box} trace={trace} config={config} isLit={box.stage === lit} row={row} hasThumbnail={!isCompact} />
        ))}
      </div>
    </div>
  );
}

function arrowHead({ stage, kind, x, y, width, height }: Box) {
  if (kind === "tokens") return null;
  const [tip, bottom] = [x + width / 2, y + height];
  return <path key={stage} class="map-arrow-head" d={`M${tip - 4} ${bottom + 6}L${tip} ${bottom}L${tip + 4} ${bottom + 6}`} />;
}

function LayerBars({ frame, onOpen }: { frame: Frame; onOpen: (layer: number) => void }) {
  return (
    <>
      <span class="map-count small" style={{ left: `${frame.x + frame.width + 6}px`, top: `${frame.y + frame.height - 22}px` }}>
        {frame.count} ×
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

function FigureBox({ box, trace, config, isLit, row, hasThumbnail }: { box: Box; trace: Trace; config: ModelConfig; isLit: boolean; row: number; hasThumbnail: boolean }) {
  const { x, y, width, height, stage, kind, title, layer, column } = box;
  const attention = kind === "attention" ? box.group : undefined;
  const place = layer >= 0 ? `, ${column} layer ${layer}` : config.shape === "encoder-decoder" ? `, ${column}` : "";
  return (
    <a
      class={`map-box map-${kind}${isLit ? " lit" : ""}`}
      style={{ left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` }}
      href={hrefFor({ view: "walk", stage, cell: "", ...(attention ? { attention } : {}) })}
      aria-label={`${`${title} ${textIn(box, trace, row)}`.trim()}${place}: open in Walk`}
      aria-current={isLit ? "step" : undefined}
      data-box={stage}
    >
      <span class="map-title">{title}</span>{" "}
      {hasThumbnail || !box.tensor ? <BoxContent box={box} trace={trace} row={row} /> : null}
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
  if (box.stage === "next") return <span class="map-text next">{text}</span>;
  const grid = latestValue(loaded);
  return grid ? <Thumbnail grid={grid} /> : null;
}

/** The matrix of a box; of an attention, the mean over its heads. */
async function loadGrid(model: ModelInfo, trace: Trace, { kind, group, tensor: name }: Box): Promise<Grid> {
  if (kind !== "attention") return (await loadPanel(model, trace, name, 0)).grid;
  const attention = findAttention(model, group)!;
  const weights = await tensor(trace.id, name);
  return attentionGrid(trace, attention, "weights", weights.shape[0] > 1 ? meanOverHeads(weights) : weights.at(0), name);
}
