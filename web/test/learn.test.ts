import assert from "node:assert/strict";
import test from "node:test";
import { blamed, label, linked, number, read, start, write, type LessonCard, type Setting } from "../src/lessons";
import { levels } from "../src/numbers";

const setting = (name: string, kind: Setting["kind"], value: unknown): Setting => ({ name, kind, default: value as Setting["default"], least: -9, most: 9, whole: false });
const CARD: LessonCard = {
  name: "context", title: "", claim: "", model: false, seconds: 0,
  settings: [
    setting("table", "table", { orange: [0, 3], apple: [2, 2] }),
    setting("sentences", "texts", ["an apple phone"]),
    setting("questions", "questions", { "It tasted good.": ["It", ["pizza", "oven"]] }),
    setting("query", "text", "Summeth"),
  ],
}; // prettier-ignore
const TABLE = [["orange", [0, 3]], ["apple", [2, 2]]] as const; // prettier-ignore

test("what was edited survives the address, also a row that is being renamed to another's name", () => {
  const edited = { table: [["apple", [0, 3]], ["apple", [2, "two"]]], query: "" } as const; // prettier-ignore
  assert.deepEqual(read(write(edited, CARD), CARD), edited);
});

test("what equals the notes' own is left out", () => {
  assert.deepEqual(start(CARD.settings[0]), TABLE);
  assert.equal(write({ table: TABLE, sentences: ["an apple phone"] }, CARD), "");
  assert.equal(write({ table: TABLE, query: "Smith" }, CARD), '{"query":"Smith"}');
});

test("an address that is built otherwise is not shown", () => {
  for (const bad of ["{", "7", "null", "[1]", '{"tabel":[]}', '{"table":7}', '{"table":[["a"]]}', '{"sentences":"a"}', '{"query":["a"]}'])
    assert.deepEqual(read(bad, CARD), {}, bad);
  const question = { questions: [["Who?", ["Who", ["he"]]]] };
  assert.deepEqual(read(JSON.stringify(question), CARD), question);
});

test("a number's field is a number, or the text that is none yet", () => {
  assert.deepEqual(["1.50", "−2", "0,5", "1e3", "", "-", "x"].map(number), [1.5, -2, 0.5, 1000, "", "-", "x"]);
});

test("a problem stands beside what it is about, or beside what was touched last", () => {
  assert.equal(blamed("given.table.3.1", "query", CARD), "table");
  assert.equal(blamed("/api/lessons/context", "query", CARD), "query");
  assert.equal(blamed("given.nothing", "", CARD), "");
});

test("lessons that a line names are links, other words are not", () => {
  const names = ["scaling", "decoder", "leak", "context"];
  assert.deepEqual(linked("follows (lesson: scaling). In", names), ["follows (lesson: ", "scaling", "). In"]);
  assert.deepEqual(linked("at once (lessons: decoder, leak).", names), ["at once (lessons: ", "decoder", ", ", "leak", ")."]);
  assert.deepEqual(linked("the lesson `context` again, `nothing`; scaling", names), ["the lesson ", "context", " again, nothing; scaling"]);
  assert.deepEqual(linked("of our own (--set bank=…).", names), ["of our own."]);
  assert.deepEqual(linked("told apart. (--set wic=FOLDER measures it.)", names), ["told apart."]);
});

test("settings have names that a person reads", () => {
  assert.equal(label("qkv", "query_weights"), "W_Q");
  assert.equal(label("order", "steps"), "Steps of the training");
  assert.equal(label("lookup", "temperatures"), "Temperatures");
});

test("levels are round and few", () => {
  assert.deepEqual(levels(0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(levels(-0.3, 4.2), [0, 1, 2, 3, 4]);
  assert.deepEqual(levels(0, 200), [0, 50, 100, 150, 200]);
});
