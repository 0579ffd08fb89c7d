"""Names of languages, and the detection of a text's language among those of the service's models."""

from typing import Any, TypedDict

NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German",
    "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "hu": "Hungarian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese", "kn": "Kannada",
    "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "ml": "Malayalam", "mr": "Marathi", "ms": "Malay",
    "nb": "Norwegian", "ne": "Nepali", "nl": "Dutch", "pa": "Punjabi", "pl": "Polish", "pt": "Portuguese",
    "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian",
    "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish",
    "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
MAX_CHARACTERS = 5000  # of a text that are looked at
SHORT = 40  # characters; the language of a shorter text is that of all texts of the request


class Detection(TypedDict):
    confidence: float  # percent
    language: str


def language_name(code: str) -> str:
    return NAMES.get(code, code)


class Detector:
    """Detects languages with py3langid, which is loaded on first use."""

    def __init__(self) -> None:
        self._identifiers: dict[tuple[str, ...], Any] = {}

    def candidates(self, text: str, languages: list[str]) -> list[Detection]:
        """Returns the languages of a text, most likely first."""
        identifier = self._identifier(tuple(sorted(languages)))
        if identifier is None:
            return [{"confidence": 0.0 if len(languages) > 1 else 100.0, "language": languages[0]}]
        ranked = identifier.rank(text[:MAX_CHARACTERS])
        return [{"confidence": round(float(p) * 100, 1), "language": code} for code, p in ranked]

    def detect(self, texts: list[str], languages: list[str]) -> list[Detection]:
        """Returns the language of each text."""
        overall = self.candidates("\n".join(texts), languages)[0]
        return [self.candidates(text, languages)[0] if len(text) > SHORT else overall for text in texts]

    def _identifier(self, languages: tuple[str, ...]) -> Any:
        """Returns an identifier limited to these languages, or None if it knows fewer than two of them."""
        if languages not in self._identifiers:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier

            identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
            known = [code for code in languages if code in identifier.labels]
            if known:
                identifier.set_languages(known)
            self._identifiers[languages] = identifier if len(known) > 1 else None
        return self._identifiers[languages]
