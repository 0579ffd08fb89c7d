// The figure of a model: boxes, frames around the layers, and arrows, from the stages of Walk. Encoder left, decoder right, the
// data flow upwards; of each stack one layer is open, the others are bars. Pure geometry, in pixels from the top left.
import type { ModelConfig } from "../api";
import { ATTENTION_NAMES, layersOf, stacks, type Stack } from "../architecture";
import { stagesFor } from "../stages/stages";
import type { Stage } from "../stages/shared";

export type BoxKind = "tokens" | "embedding" | "attention" | "norm" | "feed-forward" | "recurrent" | "output";

export interface Box {
  stage: string; // the key of the stage of Walk that it opens
  group: string; // decoder.1.cross
  tensor: string; // shown as a thumbnail; empty for tokens
  title: string;
  kind: BoxKind;
  column: Stack;
  layer: number; // −1 outside the layers
  x: number;
  y: number;
  width: number;
  height: number;
}

/** The layers of a stack: the bars open the others. */
export interface Frame {
  column: Stack;
  open: number;
  count: number;
  x: number;
  y: number;
  width: number;
  height: number;
  bars: { layer: number; x: number; y: number; width: number; height: number }[];
}

export interface Arrow {
  points: readonly (readonly [number, number])[];
  kind: "flow" | "residual" | "memory";
}

/** The arrow as the path of an SVG. */
export const pathOf = ({ points }: Arrow): string => points.map(([x, y], i) => `${i ? "L" : "M"}${x} ${y}`).join("");

export interface Figure {
  boxes: Box[];
  frames: Frame[];
  arrows: Arrow[];
  width: number;
  height: number;
}

export type OpenLayers = Record<Stack, number>;

const BOX_HEIGHT = 33;
const GAP = 11; // between boxes
const VERTICAL_MARGIN = 24;
const PADDING = 14; // of a frame; residual connections run in it
const BAR = { height: 16, gap: 5 };
/** The widths of a figure: of a box, between the columns, and around them. */
interface Widths {
  box: number;
  gap: number;
  margin: number;
}
const WIDE: Widths = { box: 290, gap: 130, margin: 24 };
const COMPACT: Widths = { box: 122, gap: 22, margin: 2 }; // for a phone: without thumbnails

const SUBLAYER = /^(encoder|decoder)\.(\d+)(?:\.(self|masked|cross|feed_forward))?$/;

/** What a stage is in the figure; null if it belongs to a box of another stage. */
function boxOf(stage: Stage, config: ModelConfig): { title: string; kind: BoxKind; tensor?: string } | null {
  const { key, group } = stage;
  const attention = /\.(self|masked|cross)\.weights$/.exec(key)?.[1] as keyof typeof ATTENTION_NAMES | undefined;
  if (attention) return { title: ATTENTION_NAMES[attention], kind: "attention" };
  if (stage.kind === "media") return { title: stage.label, kind: "embedding" };
  if (key.endsWith(".tokens")) return { title: "tokens", kind: "tokens", tensor: "" };
  if (key.endsWith(".embedded")) return { title: "embedding", kind: "embedding" };
  if (/^(encoder|decoder)\.input$/.test(key)) return { title: "+ positions", kind: "embedding" };
  if (key.endsWith("final_norm.output") || /^(encoder|decoder|head)\.norm\.output$/.test(key)) return { title: "norm", kind: "norm" };
  if (key.endsWith("feed_forward.post_activation")) return { title: "feed-forward", kind: "feed-forward" };
  if (key.endsWith(".output_norm.output")) return null;
  if (key.endsWith(".norm.output") && SUBLAYER.test(group)) return { title: config.norm_first ? "norm" : "add, norm", kind: "norm" };
  if (key.endsWith(".sum")) return config.norm_first ? { title: "add", kind: "norm" } : null;
  if (key.endsWith(".states")) return { title: "LSTM", kind: "recurrent" };
  if (key === "final_state") return { title: "final state", kind: "recurrent", tensor: stage.tensors[stage.tensors.length - 1] };
  if (key === "head.post_activation") return { title: "dense", kind: "feed-forward" };
  if (key === "logits") return { title: "linear", kind: "output" };
  if (key === "probabilities") return { title: "softmax", kind: "output" };
  if (key === "next") return { title: "next token", kind: "output", tensor: "" };
  return null;
}

/** All boxes in the order of the computation, whether their layer is open or not; not yet placed. */
export function boxesOf(config: ModelConfig): Box[] {
  return stagesFor(config).flatMap((stage) => {
    const box = boxOf(stage, config);
    if (!box) return [];
    const layer = SUBLAYER.exec(stage.group)?.[2];
    const column: Stack = config.shape === "encoder" || /^(encoder|between)/.test(stage.group) ? "encoder" : "decoder";
    return [{ stage: stage.key, group: stage.group, tensor: stage.key, ...box, column, layer: layer === undefined ? -1 : Number(layer), x: 0, y: 0, width: 0, height: BOX_HEIGHT }];
  });
}

export function drawFigure(config: ModelConfig, open: OpenLayers, isCompact = false): Figure {
  const { box, gap, margin } = isCompact ? COMPACT : WIDE;
  const all = boxesOf(config);
  const columns = stacks(config);
  const innerWidth = box + 2 * PADDING;
  const parts = columns.map((column, i) => drawColumn(column, config, all, open[column], margin + i * (innerWidth + gap), box));
  const height = Math.max(...parts.map((part) => part.height)) + 2 * VERTICAL_MARGIN;
  // Columns were placed upwards from 0.
  const down = <T extends { y: number; height: number }>(item: T): T => ({ ...item, y: height - VERTICAL_MARGIN + item.y - item.height });
  const boxes = parts.flatMap((part) => part.boxes.map(down));
  const frames = parts.flatMap((part) => part.frames.map((frame) => ({ ...down(frame), bars: frame.bars.map(down) })));
  const arrows = [...columns.flatMap((column) => flowArrows(boxes, frames, column, config)), ...memoryArrows(boxes, frames, gap)];
  return { boxes, frames, arrows, width: 2 * margin + columns.length * innerWidth + (columns.length - 1) * gap, height };
}

interface Column {
  boxes: Box[];
  frames: Frame[];
  height: number;
}

/** Places a stack upwards: y is the negative distance of a bottom edge from the bottom. */
function drawColumn(column: Stack, config: ModelConfig, all: readonly Box[], open: number, x: number, width: number): Column {
  const mine = all.filter((box) => box.column === column);
  const inside = mine.filter(({ layer }) => layer >= 0);
  const [below, above] = [mine.slice(0, mine.indexOf(inside[0])), mine.slice(mine.indexOf(inside[inside.length - 1]) + 1)];
  const count = layersOf(config, column).length;
  const boxes: Box[] = [];
  let y = 0;
  const place = (box: Box): void => {
    boxes.push({ ...box, x: x + PADDING, y, width });
    y -= BOX_HEIGHT + GAP;
  };
  below.forEach(place);
  const frameBottom = y;
  const bars: Frame["bars"] = [];
  y -= PADDING;
  for (let layer = 0; layer < count; layer++) {
    if (layer === open) inside.filter((box) => box.layer === layer).forEach(place);
    else {
      bars.push({ layer, x: x + PADDING, y, width, height: BAR.height });
      y -= BAR.height + (layer + 1 === open || layer + 1 === count ? GAP : BAR.gap);
    }
  }
  const frame: Frame = { column, open, count, x, y: frameBottom, width: width + 2 * PADDING, height: frameBottom - y - GAP + PADDING, bars };
  y -= PADDING;
  above.forEach(place);
  return { boxes, frames: [frame], height: -y - GAP };
}

const center = ({ x, width }: Box): number => x + width / 2;

/** From each box up to the next, and around the sub-layers of the open layer. */
function flowArrows(boxes: readonly Box[], frames: readonly Frame[], column: Stack, config: ModelConfig): Arrow[] {
  const mine = boxes.filter((box) => box.column === column);
  const bars = frames.find((frame) => frame.column === column)?.bars ?? [];
  const tops = [...mine, ...bars].sort((a, b) => b.y - a.y);
  const middle = center(mine[0]);
  const flow = tops.slice(1).map((upper, i): Arrow => ({ kind: "flow", points: [[middle, tops[i].y], [middle, upper.y + upper.height]] })); // prettier-ignore
  return [...flow, ...(config.kind === "transformer" ? residualArrows(mine) : [])];
}

function residualArrows(boxes: readonly Box[]): Arrow[] {
  const groups = [...new Set(boxes.filter(({ layer }) => layer >= 0).map(({ group }) => group))];
  return groups.flatMap((group): Arrow[] => {
    const mine = boxes.filter((box) => box.group === group && box.layer >= 0);
    const [first, last] = [mine[0], mine[mine.length - 1]];
    if (first === last) return [];
    const left = first.x - PADDING / 2;
    const from = first.y + first.height + GAP / 2;
    return [{ kind: "residual", points: [[center(first), from], [left, from], [left, last.y + last.height / 2], [last.x, last.y + last.height / 2]] }]; // prettier-ignore
  });
}

/** From the top of the encoder to each cross-attention that is shown, or to the first layer of a decoder without attention. */
function memoryArrows(boxes: readonly Box[], frames: readonly Frame[], gap: number): Arrow[] {
  const encoder = boxes.filter(({ column }) => column === "encoder");
  const decoder = boxes.filter(({ column }) => column === "decoder");
  if (!encoder.length || !decoder.length) return [];
  const top = encoder.reduce((a, b) => (b.y < a.y ? b : a));
  const startY = Math.min(top.y, frames.find(({ column }) => column === "encoder")!.y);
  const target = decoder.find(({ group }) => group.endsWith(".cross")) ? decoder.find(({ kind, group }) => kind === "attention" && group.endsWith(".cross")) : decoder.find(({ kind }) => kind === "recurrent");
  if (!target) return [];
  const between = target.x - PADDING - gap / 2;
  const y = target.y + target.height / 2;
  return [{ kind: "memory", points: [[center(top), startY], [center(top), startY - GAP], [between, startY - GAP], [between, y], [target.x, y]] }]; // prettier-ignore
}

/** What the play button visits: every box once for the encoder and for the first token; then, for each further token, the
 * decoder layer by layer. */
export interface Moment {
  stage: string;
  row: number; // of the decoder; −1 while the encoder works
}

export function timeline(config: ModelConfig, rows: number): Moment[] {
  const boxes = boxesOf(config);
  const encoder = boxes.filter(({ column }) => column === "encoder").map(({ stage }) => ({ stage, row: -1 }));
  const decoder = boxes.filter(({ column }) => column === "decoder");
  const later = decoder.filter(({ kind, layer }, i) => kind !== "norm" && (layer < 0 || decoder[i + 1]?.layer !== layer || kind === "attention"));
  return [
    ...encoder,
    ...Array.from({ length: decoder.length ? rows : 0 }, (_, row) => (row ? later : decoder).map(({ stage }) => ({ stage, row }))).flat(),
  ];
}
