// The figure of a model: boxes, frames around the layers, and arrows, from the stages of Walk. Encoder left, decoder right, the
// data flow upwards; of each stack one layer is open, the others are bars. Pure geometry, in pixels from the top left.
import type { ModelConfig } from "../api";
import { ATTENTION_NAMES, layersOf, type Stack, stacks } from "../architecture";
import type { Stage } from "../stages/shared";
import { stagesFor } from "../stages/stages";

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
  openY: number; // of the boxes of the open layer
  openHeight: number;
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

/** The space that a figure should fit in, in pixels, and the size of type relative to the normal one. */
export interface Space {
  width: number;
  height: number;
  unit: number;
}
const UNLIMITED: Space = { width: 860, height: Infinity, unit: 1 };

/** The heights of a figure: of a box, of a norm or sum, and between boxes. */
interface Heights {
  box: number;
  norm: number;
  gap: number;
}
const LOOSE: Heights = { box: 33, norm: 28, gap: 11 };
const TIGHT: Heights = { box: 24, norm: 18, gap: 6 }; // still 24 pixels from one box to the next
const VERTICAL_MARGIN = 8;
const BAR = { height: 16, gap: 5 };
/** The widths of a figure: of a box, between the columns, around them, and of the edge of a frame, where residual connections run. */
interface Widths {
  box: number;
  gap: number;
  margin: number;
  padding: number;
}
interface Sizes extends Heights, Omit<Widths, "box" | "gap"> {
  unit: number;
  width: number;
  columnGap: number;
}
const MAX_BOX = 290;
/** In less than this there is no room for thumbnails. */
const COMPACT_BELOW = 560;
export const isCompact = ({ width, unit }: Space): boolean => width > 0 && width < COMPACT_BELOW * unit;

function widthsFor(space: Space, columns: number): Widths {
  const edges = isCompact(space)
    ? { gap: 16, margin: 18, padding: 8 }
    : { gap: space.width > 760 ? 110 : 56, margin: 26, padding: 14 };
  const box = (space.width - 2 * edges.margin - (columns - 1) * edges.gap) / columns - 2 * edges.padding;
  return { ...edges, box: Math.max(96, Math.min(MAX_BOX * space.unit, Math.floor(box))) };
}

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
  if (key.endsWith("final_norm.output") || /^(encoder|decoder|head)\.norm\.output$/.test(key))
    return { title: "norm", kind: "norm" };
  if (key.endsWith("feed_forward.post_activation")) return { title: "feed-forward", kind: "feed-forward" };
  if (key.endsWith(".output_norm.output")) return null;
  if (key.endsWith(".norm.output") && SUBLAYER.test(group))
    return { title: config.norm_first ? "norm" : "add, norm", kind: "norm" };
  if (key.endsWith(".sum")) return config.norm_first ? { title: "add", kind: "norm" } : null;
  if (key.endsWith(".states")) return { title: "LSTM", kind: "recurrent" };
  if (key === "final_state")
    return { title: "final state", kind: "recurrent", tensor: stage.tensors[stage.tensors.length - 1] };
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
    return [
      {
        stage: stage.key,
        group: stage.group,
        tensor: stage.key,
        ...box,
        column,
        layer: layer === undefined ? -1 : Number(layer),
        x: 0,
        y: 0,
        width: 0,
        height: 0,
      },
    ];
  });
}

/** Fits the figure into the space by its heights; with many layers it stays higher. */
export function drawFigure(config: ModelConfig, open: OpenLayers, space: Space = UNLIMITED): Figure {
  const { box: width, gap: columnGap, ...edges } = widthsFor(space, stacks(config).length);
  const draw = (share: number): Figure => {
    const mix = (key: keyof Heights): number => (TIGHT[key] + (LOOSE[key] - TIGHT[key]) * share) * space.unit;
    return drawWith(config, open, {
      ...edges,
      width,
      columnGap,
      unit: space.unit,
      box: mix("box"),
      norm: mix("norm"),
      gap: mix("gap"),
    });
  };
  const [tight, loose] = [draw(0), draw(1)];
  if (loose.height <= space.height) return loose;
  return draw(Math.max(0, (space.height - tight.height) / (loose.height - tight.height)));
}

function drawWith(config: ModelConfig, open: OpenLayers, sizes: Sizes): Figure {
  const { margin, padding, columnGap } = sizes;
  const all = boxesOf(config).map((box) => ({ ...box, height: box.kind === "norm" ? sizes.norm : sizes.box }));
  const columns = stacks(config);
  const innerWidth = sizes.width + 2 * padding;
  const parts = columns.map((column, i) =>
    drawColumn(column, config, all, open[column], margin + i * (innerWidth + columnGap), sizes),
  );
  const height = Math.max(...parts.map((part) => part.height)) + 2 * VERTICAL_MARGIN;
  // Columns were placed upwards from 0.
  const down = <T extends { y: number; height: number }>(item: T): T => ({
    ...item,
    y: height - VERTICAL_MARGIN + item.y - item.height,
  });
  const boxes = parts.flatMap((part) => part.boxes.map(down));
  const frames = parts.map(({ frame }) => ({
    ...down(frame),
    openY: height - VERTICAL_MARGIN + frame.openY - frame.openHeight,
    bars: frame.bars.map(down),
  }));
  const arrows = [
    ...columns.flatMap((column) => flowArrows(boxes, frames, column, config, sizes)),
    ...memoryArrows(boxes, frames, sizes),
  ];
  return { boxes, frames, arrows, width: 2 * margin + columns.length * innerWidth + (columns.length - 1) * columnGap, height };
}

interface Column {
  boxes: Box[];
  frame: Frame;
  height: number;
}

/** Places a stack upwards: y is the negative distance of a bottom edge from the bottom. */
function drawColumn(column: Stack, config: ModelConfig, all: readonly Box[], open: number, x: number, sizes: Sizes): Column {
  const { width, padding, gap, unit } = sizes;
  const mine = all.filter((box) => box.column === column);
  const inside = mine.filter(({ layer }) => layer >= 0);
  const [below, above] = [mine.slice(0, mine.indexOf(inside[0])), mine.slice(mine.indexOf(inside[inside.length - 1]) + 1)];
  const count = layersOf(config, column).length;
  const boxes: Box[] = [];
  let y = 0;
  const place = (box: Box): void => {
    boxes.push({ ...box, x: x + padding, y, width });
    y -= box.height + gap;
  };
  below.forEach(place);
  const frameBottom = y;
  const bars: Frame["bars"] = [];
  y -= padding;
  let [openY, openHeight] = [y, 0];
  for (let layer = 0; layer < count; layer++) {
    if (layer === open) {
      openY = y;
      inside.filter((box) => box.layer === layer).forEach(place);
      openHeight = openY - y - gap;
    } else {
      bars.push({ layer, x: x + padding, y, width, height: BAR.height * unit });
      y -= BAR.height * unit + (layer + 1 === open || layer + 1 === count ? gap : BAR.gap);
    }
  }
  const frame: Frame = {
    column,
    open,
    openY,
    openHeight,
    count,
    x,
    y: frameBottom,
    width: width + 2 * padding,
    height: frameBottom - y - gap + padding,
    bars,
  };
  y -= padding;
  above.forEach(place);
  return { boxes, frame, height: -y - gap };
}

const center = ({ x, width }: Box): number => x + width / 2;

/** From each box up to the next, and around the sub-layers of the open layer. */
function flowArrows(
  boxes: readonly Box[],
  frames: readonly Frame[],
  column: Stack,
  config: ModelConfig,
  sizes: Sizes,
): Arrow[] {
  const mine = boxes.filter((box) => box.column === column);
  const bars = frames.find((frame) => frame.column === column)?.bars ?? [];
  const tops = [...mine, ...bars].sort((a, b) => b.y - a.y);
  const middle = center(mine[0]);
  const flow = tops.slice(1).map(
    (upper, i): Arrow => ({
      kind: "flow",
      points: [
        [middle, tops[i].y],
        [middle, upper.y + upper.height],
      ],
    }),
  ); // prettier-ignore
  return [...flow, ...(config.kind === "transformer" ? residualArrows(mine, sizes) : [])];
}

function residualArrows(boxes: readonly Box[], { padding, gap }: Sizes): Arrow[] {
  const groups = [...new Set(boxes.filter(({ layer }) => layer >= 0).map(({ group }) => group))];
  return groups.flatMap((group): Arrow[] => {
    const mine = boxes.filter((box) => box.group === group && box.layer >= 0);
    const [first, last] = [mine[0], mine[mine.length - 1]];
    if (first === last) return [];
    const left = first.x - padding / 2;
    const from = first.y + first.height + gap / 2;
    return [
      {
        kind: "residual",
        points: [
          [center(first), from],
          [left, from],
          [left, last.y + last.height / 2],
          [last.x, last.y + last.height / 2],
        ],
      },
    ]; // prettier-ignore
  });
}

/** From the top of the encoder to each cross-attention that is shown, or to the first layer of a decoder without attention. */
function memoryArrows(boxes: readonly Box[], frames: readonly Frame[], { padding, gap, columnGap }: Sizes): Arrow[] {
  const encoder = boxes.filter(({ column }) => column === "encoder");
  const decoder = boxes.filter(({ column }) => column === "decoder");
  if (!encoder.length || !decoder.length) return [];
  const top = encoder.reduce((a, b) => (b.y < a.y ? b : a));
  const startY = Math.min(top.y, frames.find(({ column }) => column === "encoder")!.y);
  const target = decoder.find(({ group }) => group.endsWith(".cross"))
    ? decoder.find(({ kind, group }) => kind === "attention" && group.endsWith(".cross"))
    : decoder.find(({ kind }) => kind === "recurrent");
  if (!target) return [];
  const between = target.x - padding - columnGap / 2;
  const y = target.y + target.height / 2;
  return [
    {
      kind: "memory",
      points: [
        [center(top), startY],
        [center(top), startY - gap],
        [between, startY - gap],
        [between, y],
        [target.x, y],
      ],
    },
  ]; // prettier-ignore
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
  const later = decoder.filter(
    ({ kind, layer }, i) => kind !== "norm" && (layer < 0 || decoder[i + 1]?.layer !== layer || kind === "attention"),
  );
  return [
    ...encoder,
    ...Array.from({ length: decoder.length ? rows : 0 }, (_, row) =>
      (row ? later : decoder).map(({ stage }) => ({ stage, row })),
    ).flat(),
  ];
}
