import assert from "node:assert/strict";
import test from "node:test";
import type { LessonInfo, LessonSetting } from "../src/api";
import { linearTicks } from "../src/math";
import { defaultValue, formatSettings, parseNumber, parseSettings, settingLabel, settingWithError, splitLinks } from "../src/views/learn/lessons";

const setting = (name: string, kind: LessonSetting["kind"], value: unknown): LessonSetting => ({ name, kind, default: value, minimum: -9, maximum: 9, integer: false });
const LESSON: LessonInfo = {
  name: "context", title: "", introduction: "", uses_model: false, training_seconds: 0,
  settings: [
    setting("table", "table", { orange: [0, 3], apple: [2, 2] }),
    setting("sentences", "texts", ["an apple phone"]),
    setting("questions", "questions", { "It tasted good.": ["It", ["pizza", "oven"]] }),
    setting("query", "text", "Summeth"),
  ],
}; // prettier-ignore
const TABLE = [["orange", [0, 3]], ["apple", [2, 2]]] as const; // prettier-ignore

test("edits survive the URL, also while two rows have the same name", () => {
  const edited = { table: [["apple", [0, 3]], ["apple", [2, "two"]]], query: "" } as const; // prettier-ignore
  assert.deepEqual(parseSettings(formatSettings(edited, LESSON), LESSON), edited);
});

test("default values are left out of the URL", () => {
  assert.deepEqual(defaultValue(LESSON.settings[0]), TABLE);
  assert.equal(formatSettings({ table: TABLE, sentences: ["an apple phone"] }, LESSON), "");
  assert.equal(formatSettings({ table: TABLE, query: "Smith" }, LESSON), '{"query":"Smith"}');
});

test("values of the wrong structure in the URL are ignored", () => {
  for (const bad of ["{", "7", "null", "[1]", '{"tabel":[]}', '{"table":7}', '{"table":[["a"]]}', '{"sentences":"a"}', '{"query":["a"]}'])
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
  assert.deepEqual(splitLinks("at once (lessons: decoder, leak).", names), ["at once (lessons: ", "decoder", ", ", "leak", ")."]);
  assert.deepEqual(splitLinks("the lesson `context` again, `nothing`; scaling", names), ["the lesson ", "context", " again, nothing; scaling"]);
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
