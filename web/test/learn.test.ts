import assert from "node:assert/strict";
import test from "node:test";
import type { LessonInfo, LessonSetting } from "../src/api";
import { blamed, label, linked, number, read, start, write } from "../src/views/learn/lessons";
import { linearTicks } from "../src/math";

const setting = (name: string, kind: LessonSetting["kind"], value: unknown): LessonSetting => ({ name, kind, default: value, minimum: -9, maximum: 9, integer: false });
const CARD: LessonInfo = {
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
  assert.deepEqual(read(write(edited, CARD), CARD), edited);
});

test("default values are left out of the URL", () => {
  assert.deepEqual(start(CARD.settings[0]), TABLE);
  assert.equal(write({ table: TABLE, sentences: ["an apple phone"] }, CARD), "");
  assert.equal(write({ table: TABLE, query: "Smith" }, CARD), '{"query":"Smith"}');
});

test("values of the wrong structure in the URL are ignored", () => {
  for (const bad of ["{", "7", "null", "[1]", '{"tabel":[]}', '{"table":7}', '{"table":[["a"]]}', '{"sentences":"a"}', '{"query":["a"]}'])
    assert.deepEqual(read(bad, CARD), {}, bad);
  const question = { questions: [["Who?", ["Who", ["he"]]]] };
  assert.deepEqual(read(JSON.stringify(question), CARD), question);
});

test("a number field holds a number, or text that is not a number yet", () => {
  assert.deepEqual(["1.50", "−2", "0,5", "1e3", "", "-", "x"].map(number), [1.5, -2, 0.5, 1000, "", "-", "x"]);
});

test("an error belongs to the setting it names, or to the last one edited", () => {
  assert.equal(blamed("settings.table.3.1", "query", CARD), "table");
  assert.equal(blamed("/api/lessons/context", "query", CARD), "query");
  assert.equal(blamed("settings.nothing", "", CARD), "");
});

test("names of lessons become links, other words do not", () => {
  const names = ["scaling", "decoder", "leak", "context"];
  assert.deepEqual(linked("follows (lesson: scaling). In", names), ["follows (lesson: ", "scaling", "). In"]);
  assert.deepEqual(linked("at once (lessons: decoder, leak).", names), ["at once (lessons: ", "decoder", ", ", "leak", ")."]);
  assert.deepEqual(linked("the lesson `context` again, `nothing`; scaling", names), ["the lesson ", "context", " again, nothing; scaling"]);
  assert.deepEqual(linked("of our own (--set bank=…).", names), ["of our own."]);
  assert.deepEqual(linked("told apart. (--set wic=FOLDER measures it.)", names), ["told apart."]);
});

test("settings have readable labels", () => {
  assert.equal(label("qkv", "query_weights"), "W_Q");
  assert.equal(label("order", "steps"), "Steps of the training");
  assert.equal(label("lookup", "temperatures"), "Temperatures");
});

test("linearTicks are round and few", () => {
  assert.deepEqual(linearTicks(0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(linearTicks(-0.3, 4.2), [0, 1, 2, 3, 4]);
  assert.deepEqual(linearTicks(0, 200), [0, 50, 100, 150, 200]);
});
