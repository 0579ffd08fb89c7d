import assert from "node:assert/strict";
import test from "node:test";
import type { LessonInfo, LessonSetting } from "../src/api";
import { linearTicks } from "../src/math";
import {
  defaultValue,
  formatSettings,
  isRight,
  parseAnswer,
  parseNumber,
  parseSettings,
  settingLabel,
  settingWithError,
  splitLinks,
  trySettings,
} from "../src/views/learn/lessons";
import { isDone, parseProgress, withLesson } from "../src/views/learn/progress";

const setting = (name: string, kind: LessonSetting["kind"], value: unknown): LessonSetting => ({
  name,
  kind,
  default: value,
  minimum: -9,
  maximum: 9,
  integer: false,
});
const LESSON: LessonInfo = {
  name: "context",
  group: "",
  title: "",
  question: "",
  uses_model: false,
  training_seconds: 0,
  settings: [
    setting("table", "table", { orange: [0, 3], apple: [2, 2] }),
    setting("sentences", "texts", ["an apple phone"]),
    setting("questions", "questions", { "It tasted good.": ["It", ["pizza", "oven"]] }),
    setting("query", "text", "Summeth"),
  ],
}; // prettier-ignore
const TABLE = [
  ["orange", [0, 3]],
  ["apple", [2, 2]],
] as const; // prettier-ignore

test("edits survive the URL, also while two rows have the same name", () => {
  const edited = {
    table: [
      ["apple", [0, 3]],
      ["apple", [2, "two"]],
    ],
    query: "",
  } as const; // prettier-ignore
  assert.deepEqual(parseSettings(formatSettings(edited, LESSON), LESSON), edited);
});

test("default values are left out of the URL", () => {
  assert.deepEqual(defaultValue(LESSON.settings[0]), TABLE);
  assert.equal(formatSettings({ table: TABLE, sentences: ["an apple phone"] }, LESSON), "");
  assert.equal(formatSettings({ table: TABLE, query: "Smith" }, LESSON), '{"query":"Smith"}');
});

test("values of the wrong structure in the URL are ignored", () => {
  for (const bad of [
    "{",
    "7",
    "null",
    "[1]",
    '{"tabel":[]}',
    '{"table":7}',
    '{"table":[["a"]]}',
    '{"sentences":"a"}',
    '{"query":["a"]}',
  ])
    assert.deepEqual(parseSettings(bad, LESSON), {}, bad);
  const question = { questions: [["Who?", ["Who", ["he"]]]] };
  assert.deepEqual(parseSettings(JSON.stringify(question), LESSON), question);
});

test("a number field holds a number, or text that is not a number yet", () => {
  assert.deepEqual(["1.50", "−2", "0,5", "1e3", "", "-", "x"].map(parseNumber), [1.5, -2, 0.5, 1000, "", "-", "x"]);
});

test("an error belongs to the setting it names, or to the last one edited", () => {
  assert.equal(settingWithError("settings.table.3.1", "query", LESSON), "table");
  assert.equal(settingWithError("/api/lessons/context", "query", LESSON), "query");
  assert.equal(settingWithError("settings.nothing", "", LESSON), "");
});

test("names of lessons become links, other words do not", () => {
  const names = ["scaling", "decoder", "leak", "context"];
  assert.deepEqual(splitLinks("follows (lesson: scaling). In", names), ["follows (lesson: ", "scaling", "). In"]);
  assert.deepEqual(splitLinks("at once (lessons: decoder, leak).", names), [
    "at once (lessons: ",
    "decoder",
    ", ",
    "leak",
    ").",
  ]);
  assert.deepEqual(splitLinks("the lesson `context` again, `nothing`; scaling", names), [
    "the lesson ",
    "context",
    " again, nothing; scaling",
  ]);
  assert.deepEqual(splitLinks("of our own (--set bank=…).", names), ["of our own."]);
  assert.deepEqual(splitLinks("told apart. (--set wic=FOLDER measures it.)", names), ["told apart."]);
});

test("settings have readable labels", () => {
  assert.equal(settingLabel("qkv", "query_weights"), "W_Q");
  assert.equal(settingLabel("order", "steps"), "Training steps");
  assert.equal(settingLabel("lookup", "temperatures"), "Temperatures");
});

test("linear ticks are few round numbers", () => {
  assert.deepEqual(linearTicks(0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(linearTicks(-0.3, 4.2), [0, 1, 2, 3, 4]);
  assert.deepEqual(linearTicks(0, 200), [0, 50, 100, 150, 200]);
});

test("a suggestion becomes settings in the form in which they are edited", () => {
  assert.deepEqual(trySettings({ table: { apple: [4, 1] }, sentences: "an apple", unknown: 1 }, LESSON), {
    table: [["apple", [4, 1]]],
    sentences: ["an apple"],
  });
});

test("answers are numbers within the tolerance, or choices", () => {
  const half = { answer: 0.5, choices: [], tolerance: 0.01 };
  for (const right of ["0.5", "0,5", "50%", "50 %", "1/2", " .505"]) assert.ok(isRight(half, right), right);
  for (const wrong of ["", "0.6", "half", "1/0", "5", "-0.5"]) assert.ok(!isRight(half, wrong), wrong);
  assert.equal(parseAnswer("6,144"), 6144);
  assert.equal(parseAnswer("−6"), -6);
  assert.ok(isRight({ answer: "dog", choices: ["cat", "dog"], tolerance: 0.01 }, "Dog"));
});

test("progress is remembered per lesson, and rubbish in the store is ignored", () => {
  let progress = withLesson({}, "context", 3);
  assert.deepEqual(progress, { context: { solved: [], total: 3 } });
  for (const i of [2, 0, 2, 1]) progress = withLesson(progress, "context", 3, i);
  assert.ok(isDone(progress.context) && !isDone(withLesson({}, "context", 3, 0).context) && !isDone(undefined));
  assert.deepEqual(parseProgress(JSON.stringify(progress)), progress);
  for (const bad of [null, "{", "7", "[]", '{"context":7}', '{"context":{"solved":["x"],"total":3}}'])
    assert.deepEqual(parseProgress(bad), {}, String(bad));
});
