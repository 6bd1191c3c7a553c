"""Two languages, equally good: what is said to people is in mingce/texts, in both.

The display language follows the person: `--lang` of the command, else MINGCE_LANG, else the locale (zh* is Chinese,
anything else English). It is no setting of a run: the same run is shown in Chinese to one reader and in English to
another. The language of the embedded tasks is one: `data.lang`.
"""

from __future__ import annotations

import os

from mingce.base.errors import SettingError

LANGS = ("zh", "en")
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")


def display_lang() -> str:
    """The language of what is printed and shown."""
    asked = os.environ.get("MINGCE_LANG", "").strip().lower()
    if asked:
        if asked not in LANGS:
            raise SettingError(f"MINGCE_LANG must be zh or en, but is '{asked}'.")
        return asked
    locale = next((value for name in _LOCALE if (value := os.environ.get(name))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def choose_lang(lang: str) -> None:
    """`--lang`: the display language of this process and, through the environment, of those it starts."""
    os.environ["MINGCE_LANG"] = lang
