// Devanagari in Latin letters by ISO 15919, for readers who do not know the script.

const VOWELS: Record<string, string> = {
  अ: "a",
  आ: "ā",
  इ: "i",
  ई: "ī",
  उ: "u",
  ऊ: "ū",
  ऋ: "r̥",
  ऍ: "ê",
  ए: "ē",
  ऐ: "ai",
  ऑ: "ô",
  ओ: "ō",
  औ: "au",
};
const SIGNS: Record<string, string> = {
  "ा": "ā",
  "ि": "i",
  "ी": "ī",
  "ु": "u",
  "ू": "ū",
  "ृ": "r̥",
  "ॅ": "ê",
  "े": "ē",
  "ै": "ai",
  "ॉ": "ô",
  "ो": "ō",
  "ौ": "au",
  "्": "",
};
const CONSONANTS: Record<string, string> = {
  क: "k",
  ख: "kh",
  ग: "g",
  घ: "gh",
  ङ: "ṅ",
  च: "c",
  छ: "ch",
  ज: "j",
  झ: "jh",
  ञ: "ñ",
  ट: "ṭ",
  ठ: "ṭh",
  ड: "ḍ",
  ढ: "ḍh",
  ण: "ṇ",
  त: "t",
  थ: "th",
  द: "d",
  ध: "dh",
  न: "n",
  प: "p",
  फ: "ph",
  ब: "b",
  भ: "bh",
  म: "m",
  य: "y",
  र: "r",
  ल: "l",
  ळ: "ḷ",
  व: "v",
  श: "ś",
  ष: "ṣ",
  स: "s",
  ह: "h",
}; // prettier-ignore
const DOTTED: Record<string, string> = { क: "q", ख: "k͟h", ग: "ġ", ज: "z", ड: "ṛ", ढ: "ṛh", फ: "f" }; // with a nukta
const OTHERS: Record<string, string> = {
  "ं": "ṁ",
  "ँ": "m̐",
  "ः": "ḥ",
  ऽ: "’",
  "।": ".",
  "॥": ".",
  ...Object.fromEntries([..."०१२३४५६७८९"].map((digit, n) => [digit, String(n)])),
};

/** Such as " (mujhē)", to append where only plain text is possible; empty for other scripts. */
export const inLatin = (text: string): string => (hasDevanagari(text) ? ` (${transliterate(text)})` : "");

/** Whether a text has letters of the script; its digits and full stops need no transliteration. */
export const hasDevanagari = (text: string): boolean => /[\u0904-\u0939\u0958-\u0961\u0972-\u097f]/.test(text);

/** Every letter is written, also the final a that Hindi does not speak. */
export function transliterate(text: string): string {
  const letters = [...text.normalize("NFD")];
  return letters
    .map((letter, i) => {
      if (letter === "़" || /[\u200c\u200d]/.test(letter)) return "";
      const dotted = letters[i + 1] === "़";
      const consonant = (dotted && DOTTED[letter]) || CONSONANTS[letter];
      const next = letters[i + (dotted ? 2 : 1)] ?? "";
      if (consonant) return consonant + (next in SIGNS ? "" : "a");
      return VOWELS[letter] ?? SIGNS[letter] ?? OTHERS[letter] ?? letter;
    })
    .join("")
    .normalize("NFC");
}
