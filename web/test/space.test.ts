import assert from "node:assert/strict";
import test from "node:test";
import { FLAT, frameOf, type Point, placeLabels, pointAt, projector, rotate, SOLID } from "../src/views/space/scene";

const near = (a: readonly number[], b: readonly number[]): void =>
  a.forEach((value, i) => assert.ok(Math.abs(value - b[i]) < 1e-9, `${a} is not ${b}`));

test("turning the camera keeps distances", () => {
  const [a, b]: [Point, Point] = [
    [1, 2, 3],
    [-2, 0.5, 1],
  ];
  const distance = (p: Point, q: Point): number => Math.hypot(...p.map((value, i) => value - q[i]));
  assert.ok(Math.abs(distance(rotate(a, SOLID), rotate(b, SOLID)) - distance(a, b)) < 1e-9);
  near(rotate([1, 0, 0], { ...FLAT, turn: Math.PI / 2 }), [0, 0, -1]);
  near(rotate([0, 1, 0], { ...FLAT, tilt: Math.PI / 2 }), [0, 0, 1]);
});

test("everything framed is in the picture, however it is turned", () => {
  const points: Point[] = [
    [3, 0, 0],
    [-1, 2, 5],
    [0, -4, 1],
    [2, 2, -2],
  ];
  for (const dimensions of [2, 3])
    for (const camera of dimensions === 3 ? [FLAT, SOLID, { ...SOLID, turn: 2.5, tilt: -1 }] : [FLAT]) {
      const project = projector(camera, frameOf(points, dimensions), 600, 400);
      for (const [x, y, z] of points) {
        const at = project([x, y, dimensions === 3 ? z : 0]);
        assert.ok(at.x >= 0 && at.x <= 600 && at.y >= 0 && at.y <= 400 && at.depth >= 0 && at.depth <= 1);
      }
    }
  assert.deepEqual(projector(FLAT, frameOf([], 2), 600, 400)([0, 0, 0]), { x: 300, y: 200, depth: 0.5 });
});

test("a label that does not fit on the right goes to the left, and is left out if there is no room", () => {
  const label = { x: 100, y: 50, width: 40, height: 14 };
  assert.deepEqual(placeLabels([label, { ...label, x: 104 }, { ...label, x: 102 }, { ...label, y: 80 }]), [108, 56, null, 108]);
});

test("between two layers a token is between their points", () => {
  const path: Point[] = [
    [0, 0, 0],
    [2, 4, 0],
    [2, 4, 8],
  ];
  near(pointAt(path, 0.5), [1, 2, 0]);
  near(pointAt(path, 2), [2, 4, 8]);
});
