// The geometry of the Space view: a camera that turns and zooms around points, and labels that do not overlap.

export type Point = readonly [number, number, number];

export interface Camera {
  turn: number; // radians around the vertical axis
  tilt: number; // radians around the horizontal axis
  zoom: number;
  x: number; // pixels that the picture is shifted by
  y: number;
}

export interface ScreenPoint {
  x: number;
  y: number;
  depth: number; // from 0, far, to 1, near
}

export const FLAT: Camera = { turn: 0, tilt: 0, zoom: 1, x: 0, y: 0 };
export const SOLID: Camera = { ...FLAT, turn: 0.6, tilt: 0.35 };

export function rotate([x, y, z]: Point, { turn, tilt }: Camera): Point {
  const [turned, away] = [x * Math.cos(turn) + z * Math.sin(turn), z * Math.cos(turn) - x * Math.sin(turn)];
  return [turned, y * Math.cos(tilt) - away * Math.sin(tilt), away * Math.cos(tilt) + y * Math.sin(tilt)];
}

export interface Frame {
  center: Point;
  halfWidth: number;
  halfHeight: number;
}

/** What must stay in view: a box around the points in two dimensions; in three a ball, since it can be turned. */
export function frameOf(points: readonly Point[], dimensions: number): Frame {
  const range = (axis: number): [number, number] =>
    points.reduce(([low, high], point) => [Math.min(low, point[axis]), Math.max(high, point[axis])], [Infinity, -Infinity]);
  const ranges = [0, 1, 2].map((axis): [number, number] => (points.length && axis < dimensions ? range(axis) : [0, 0]));
  const center = ranges.map(([low, high]) => (low + high) / 2) as unknown as Point;
  if (dimensions < 3)
    return { center, halfWidth: (ranges[0][1] - ranges[0][0]) / 2, halfHeight: (ranges[1][1] - ranges[1][0]) / 2 };
  const radius = points.reduce(
    (most, point) => Math.max(most, Math.hypot(...point.map((value, axis) => value - center[axis]))),
    0,
  );
  return { center, halfWidth: radius, halfHeight: radius };
}

const MARGIN = 24; // pixels
const LABEL_MARGIN = 60; // left and right

/** Where points appear in a picture of this size. */
export function projector(
  camera: Camera,
  { center, halfWidth, halfHeight }: Frame,
  width: number,
  height: number,
): (point: Point) => ScreenPoint {
  const fitted = Math.min(
    (width / 2 - Math.min(LABEL_MARGIN, width / 10)) / Math.max(halfWidth, 1e-6),
    (height / 2 - MARGIN) / Math.max(halfHeight, 1e-6),
  );
  const [scale, radius] = [fitted * camera.zoom, Math.max(halfWidth, halfHeight, 1e-6)];
  return (point) => {
    const [x, y, z] = rotate([point[0] - center[0], point[1] - center[1], point[2] - center[2]], camera);
    return {
      x: width / 2 + camera.x + x * scale,
      y: height / 2 + camera.y - y * scale,
      depth: Math.min(1, Math.max(0, 0.5 + z / radius / 2)),
    };
  };
}

export interface Label {
  x: number; // of the point
  y: number;
  width: number; // of the text
  height: number;
}

const GAP = 8; // pixels between a point and its label

/** Where each label's text starts, to the right or left of its point; null if it would cover a more important one before it. */
export function placeLabels(labels: readonly Label[], pictureWidth = Infinity): (number | null)[] {
  const size = 48;
  const taken = new Map<string, (readonly [number, number, number, number])[]>();
  return labels.map(({ x, y, width, height }) => {
    for (const left of [x + GAP, x - GAP - width]) {
      if (left < 0 || left + width > pictureWidth) continue;
      const box = [left, y - height / 2, left + width, y + height / 2] as const;
      const cells: string[] = [];
      for (let i = Math.floor(box[0] / size); i <= Math.floor(box[2] / size); i++)
        for (let j = Math.floor(box[1] / size); j <= Math.floor(box[3] / size); j++) cells.push(`${i} ${j}`);
      const overlaps = (other: typeof box): boolean =>
        box[0] < other[2] + 4 && other[0] < box[2] + 4 && box[1] < other[3] && other[1] < box[3];
      if (cells.some((key) => taken.get(key)?.some(overlaps))) continue;
      for (const key of cells) taken.set(key, [...(taken.get(key) ?? []), box]);
      return left;
    }
    return null;
  });
}

/** The point of a path at a fractional layer. */
export function pointAt(path: readonly Point[], layer: number): Point {
  const [before, after] = [path[Math.floor(layer)], path[Math.ceil(layer)]];
  const share = layer - Math.floor(layer);
  return before.map((value, axis) => value + (after[axis] - value) * share) as unknown as Point;
}
