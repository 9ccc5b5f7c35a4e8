"""Take the dress off an answer: Unicode signs, dollar signs, fonts, spacing, thousands separators.

`clean` keeps the mathematics; the parser reads its result, and the first rule compares it as text.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_LENGTH = 20_000
"""Longer answers are only compared as text (characters)."""

_VULGAR = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5",
    "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅐": "1/7", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8",
    "⅑": "1/9", "⅒": "1/10",
}  # fmt: skip
_SIGNS = {
    "−": "-", "–": "-", "—": "-", "‒": "-", "‐": "-", "‑": "-", "﹣": "-",
    "×": r"\times ", "✕": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "∙": r"\cdot ", "•": r"\cdot ",
    "∗": "*", "÷": r"\div ", "⁄": "/", "∕": "/", "±": r"\pm ", "∓": r"\mp ", "≤": r"\le ", "⩽": r"\le ",
    "≦": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≧": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≅": r"\approx ",
    "∞": r"\infty ", "π": r"\pi ", "𝜋": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ",
    "γ": r"\gamma ", "δ": r"\delta ", "λ": r"\lambda ", "μ": r"\mu ", "φ": r"\phi ", "ω": r"\omega ",
    "Δ": r"\Delta ", "°": r"^\circ ", "º": r"^\circ ", "˚": r"^\circ ", "∪": r"\cup ", "∩": r"\cap ",
    "∅": r"\emptyset ", "∈": r"\in ", "∖": r"\setminus ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    "∠": r"\angle ", "∴": " therefore ", "…": r"\ldots ", "⋯": r"\ldots ", "′": "'", "’": "'", "‘": "'",
    "“": '"', "”": '"', "∣": "|", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
    "⟨": r"\langle ", "⟩": r"\rangle ", "√": r"\sqrt ", "∛": r"\sqrt[3]", "→": r"\to ", "⇒": "=>",
    "€": r"\euro ", "£": r"\pound ", "¥": r"\yen ", "¢": r"\cent ", "％": "%", "‰": "", "⁡": "", "⁢": "",
    "\u200b": "", "\u200c": "", "\u200d": "", "\ufeff": "", "\u2060": "", "\u00ad": "",
}  # fmt: skip
_SPACES = "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_SUPER = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUB = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True))
_TABLE: dict[int, str] = {ord(k): v for k, v in _SIGNS.items()}
_TABLE |= {ord(c): " " for c in _SPACES}
_TABLE |= {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if chr(code) != "％"}
_TABLE |= {ord(k): rf"\frac{{{v.split('/')[0]}}}{{{v.split('/')[1]}}}" for k, v in _VULGAR.items()}
_SUPER_RUN = re.compile(f"[{''.join(_SUPER)}]+")
_SUB_RUN = re.compile(f"[{''.join(_SUB)}]+")

# A JSON or Python string that was decoded once too often: \frac became form feed + "rac".
_EATEN = re.compile(
    r"\x0c(?=rac)|\x08(?=oxed|egin|inom|ar\b)|\t(?=ext|imes|frac|an\b|heta)|\r(?=ight)|\x0b(?=ar)"
)
_EATEN_AS = {"\x0c": r"\f", "\x08": r"\b", "\t": r"\t", "\r": r"\r", "\x0b": r"\v"}
# ... or once too rarely: \\frac. Three backslashes are a row end and a command.
_DOUBLED = re.compile(
    r"(?<!\\)\\\\(?=(?:[dtc]?frac|sqrt|pi|pm|text|boxed|left|right|begin|end|cdot|times|infty|cup|sin|cos|tan|log"
    r"|ln|le|ge|leq|geq|circ|mathrm|binom|overline)(?![a-z])|[()\[\]](?!\d*\.?\d*(?:em|ex|pt)))"
)

_FONT = re.compile(
    r"\\(?:underbrace|overbrace|mathrm|mathbf|mathit|mathsf|mathtt|mathcal|mathnormal|boldsymbol|bm|bold|textbf|textit|textrm|textsf"
    r"|texttt|textnormal|textup|emph|mbox|hbox|operatorname\*?|underline|rm|bf|it)(?=\s*\{)"
)
_BARE_FONT = re.compile(r"\\(?:rm|bf|it|sf|tt|cal)(?![a-zA-Z])")
_DROP = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|big|Big|bigg|Bigg|middle)(?![a-zA-Z])\.?"
    r"|\\(?:displaystyle|textstyle|scriptstyle|scriptsize|small|large|Large|huge|normalsize|noindent|limits"
    r"|nolimits|centering|newline|hfill|allowbreak|nobreak)(?![a-zA-Z])"
    r"|\\[hvm]?(?:space|skip|kern)\*?\s*(?:\{[^{}]*\}|-?[\d.]+\s*(?:em|ex|pt|mu))"
    r"|\\(?:phantom|hphantom|vphantom|label|tag|color|textcolor)\*?\s*(?:\[[^\[\]]*\])?\{[^{}]*\}"
)
_BLANK = re.compile(
    r"(?:(?<!\\)\\(?:quad|qquad|thinspace|enspace|medspace|space|,|;|:|>| |!)|(?<!\\)~|[ \t\r\n\f\v])+"
)
_ALIAS = {
    r"\tfrac": r"\frac", r"\dfrac": r"\frac", r"\cfrac": r"\frac", r"\leq": r"\le", r"\leqslant": r"\le",
    r"\leqq": r"\le", r"\lt": "<", r"\gt": ">", r"\geq": r"\ge", r"\geqslant": r"\ge", r"\geqq": r"\ge",
    r"\neq": r"\ne", r"\varnothing": r"\emptyset", r"\degree": r"^\circ", r"\degrees": r"^\circ",
    r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]", r"\vert": "|", r"\lvert": "|",
    r"\rvert": "|", r"\mid": "|", r"\ast": "*", r"\colon": ":", r"\land": r"\text{ and }",
    r"\wedge": r"\text{ and }", r"\lor": r"\text{ or }", r"\vee": r"\text{ or }", r"\dots": r"\ldots",
    r"\cdots": r"\ldots", r"\dotsc": r"\ldots", r"\varphi": r"\phi", r"\tbinom": r"\binom",
    r"\dbinom": r"\binom", r"\backslash": r"\setminus", r"\smallsetminus": r"\setminus", r"\exp": r"exp",
    r"\fbox": r"\boxed", r"\framebox": r"\boxed", r"\infin": r"\infty", r"\textdollar": r"\$",
    r"\pounds": r"\pound", r"\texteuro": r"\euro", r"\not=": r"\ne", r"\sim": r"\approx", r"\iff": r"\to",
    r"\rightarrow": r"\to", r"\implies": "=>", r"\Rightarrow": "=>", r"\Longrightarrow": "=>",
    r"\therefore": " therefore ", r"\percent": "%", r"\imath": "i", r"\arctan": r"\atan",
    r"\arcsin": r"\asin", r"\arccos": r"\acos", r"\widehat": "", r"\wedgeq": "=", r"\equal": "=",
    r"\surd": r"\sqrt",
}  # fmt: skip
_COMMAND = re.compile(r"\\(?:not=|[A-Za-z]+)")
_CALCULATOR = re.compile(r"<<[^<>]*>>")  # GSM8K's marks
_TAG = re.compile(
    r"</?\s*(?:span|p|br|div|math|strong|em|b|i|u|sub|sup|code|pre|html|body|think)(?:\s[^<>\n]{0,80})?/?>"
    r"|</?\s*(?:answer|aked)[^\n<>]{0,40}>?|<\|[a-z_]{1,20}\|>|</s>|<eos>|<end_of_turn>|```[a-z]*|\[/?answer\]"
)
THOUSANDS = re.compile(r"(?<=\d)(?:\s?\{\s?,\s?\}\s?|\s?,\s?\\!\s?|\\,)(?=\d\d\d(?!\d))")
_GROUPED = re.compile(r"(?<![\d.,])(\d{1,3})((?:,\d{3})+)(?![\d]|,\d)")
_SPACED = re.compile(r"(?<![\d.,] )(?<![\d.,])(\d{1,3})((?: \d{3})+)(?![\d/])(?! \d)")
_CURRENCY = re.compile(r"(?<![A-Za-z])(?:USD|US\$|Rs\.?)\s*(?=\d)")
_WORDY = re.compile(r"\\text\s*\{([^{}]*\d[^{}]*)\}")
_PICTURE = re.compile("[\u2600-\u27bf\ufe0f\U0001f300-\U0001faff]")
_BY = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))|(?<=\d)\s+[xX]\s+(?=\$?\d)")


def _super(match: re.Match[str]) -> str:
    return "^{" + "".join(_SUPER[c] for c in match.group()) + "}"


def _sub(match: re.Match[str]) -> str:
    return "_{" + "".join(_SUB[c] for c in match.group()) + "}"


def _alias(match: re.Match[str]) -> str:
    command = match.group()
    new = _ALIAS.get(command)
    if new is None:
        return command
    return new + " " if new[-1:].isalpha() else new


def ascii_math(text: str) -> str:
    """Unicode signs as LaTeX: ½, √, x², ∞, full-width digits, thin spaces, true minus."""
    if text.isascii():
        return text
    text = _PICTURE.sub("", text)
    text = _SUPER_RUN.sub(_super, text)
    text = _SUB_RUN.sub(_sub, text)
    return text.translate(_TABLE)


@lru_cache(maxsize=8192)
def markup(text: str) -> str:
    """`text` with one spelling for each sign and without fonts, spacing and HTML; dollars stay."""
    if _EATEN.search(text):
        text = _EATEN.sub(lambda m: _EATEN_AS[m.group()], text)
    text = ascii_math(text).strip()
    if "\\\\" in text:
        text = _DOUBLED.sub(lambda m: "\\", text)
    if "<" in text or "`" in text or "[" in text:
        text = _TAG.sub(" ", _CALCULATOR.sub("", text)).replace("`", "")
    if "\\" in text:
        text = THOUSANDS.sub("", text)
        text = _COMMAND.sub(_alias, text)
        text = _FONT.sub(r"\\text", text)
        text = _BARE_FONT.sub("", text)
        text = _DROP.sub(" ", text)
        text = _WORDY.sub(r" \1 ", text)
    elif "{" in text:
        text = THOUSANDS.sub("", text)
    if "..." in text:
        text = re.sub(r"\.\.\.+", r"\\ldots ", text)
    text = _BLANK.sub(" ", text)
    if "USD" in text or "US$" in text or "Rs" in text:
        text = _CURRENCY.sub(r"\\$", text)
    if "**" in text and "**" in (text[:2], text[-2:]):
        text = text.strip("*")
    if "x" in text or "X" in text:
        text = _BY.sub(r" \\times ", text)
    return text.strip()


_CHOOSE = re.compile(
    r"(?:\{\s*\}\s*)?(?:[_^]\s*)\{?(\d{1,4})\}?\s*C\s*_?\s*\{?(\d{1,4})\}?(?!\w)"
    r"|(?<![\w\\.])(\d{1,4})\s?C\s?_?\{?(\d{1,4})\}?(?![\w.])"
)
_SCALE = re.compile(
    r"(?<=\d)\s*(?:\\text\s*\{\s*)?(hundred|thousand|million|billion|trillion|dozen)s?\b\s*\}?",
    re.IGNORECASE,
)
_SCALE_AS = {
    "hundred": "10^{2}", "thousand": "10^{3}", "million": "10^{6}", "billion": "10^{9}",
    "trillion": "10^{12}",
    "dozen": "12",
}  # fmt: skip
_BASED = re.compile(r"\((\d[0-9A-Za-z.]*)\)(?=\s*_)")
_RATIO = re.compile(r"(\d+(?:\.\d+)?)\s+to\s+(\d+(?:\.\d+)?)")
_ORDINAL = re.compile(
    r"(\d+)\s*\^?\s*\{?\s*(?:\\text\s*\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?(?=$|\s+(?:place|term|day|person|floor)$)"
)
_EMPTY = re.compile(r"(?<![\\A-Za-z}^_])\{\s*\}|(?<=\})\{\s*\}$")
_AMPERSAND = re.compile(r"\s+\\?&\s+")
_MONEY = re.compile(r"\$?(\d+)(?:\s*dollars?)? and (\d{1,2})\s*cents?")
_OUTWARD = re.compile(r"([\[\]])([^\[\]]+,[^\[\]]+)([\[\]])")
_SWISS = re.compile(r"(?<=\d)'(?=\d{3}(?!\d))")


def scaled(text: str) -> str:
    """``5 million`` as ``5 \\times 10^{6}``."""
    return _SCALE.sub(lambda m: f" \\times {_SCALE_AS[m[1].lower()]} ", text)


def rewrite(text: str) -> str:
    """Other spellings of numbers: 7C2, 5 million, (204)_5, 3 to 1, 0.333..., 1'000."""
    if "C" in text:
        text = _CHOOSE.sub(lambda m: f"\\binom{{{m[1] or m[3]}}}{{{m[2] or m[4]}}}", text)
    text = scaled(text)
    if "{" in text:
        text = _EMPTY.sub("", text).replace("\\sqrt[]", "\\sqrt")
    if "&" in text and "\\begin" not in text:
        text = _AMPERSAND.sub(", ", text)
    if "+/-" in text:
        text = text.replace("+/-", "\\pm ")
    if _ORDINAL.fullmatch(text):
        return text[: len(text) - len(text.lstrip("0123456789"))]
    text = re.sub(r"^\^\s*\{?([2-9])\}?\s*\\sqrt", r"\\sqrt[\1]", text)
    if "_" in text:
        text = _BASED.sub(r"\1", text)
    if "'" in text:
        text = _SWISS.sub("", text)
    if "per cent" in text:
        text = text.replace("per cent", "percent")
    if "cent" in text and (money := _MONEY.fullmatch(text)):
        return f"\\${money[1]}.{int(money[2]):02d}"
    if text[:1] == "]" or text[-1:] == "[":  # ]0,1[ is the open interval where French is spoken
        text = _OUTWARD.sub(lambda m: "[("[m[1] == "]"] + m[2] + "])"[m[3] == "["], text)
    ratio = _RATIO.fullmatch(text)
    return f"{ratio[1]}:{ratio[2]}" if ratio else text


def balance(text: str) -> str:
    """Without closing brackets at the end that nothing opened."""
    if text[-1:] not in (")", "]", "}"):
        return text
    spare = sum(map(text.count, ")]}")) - sum(map(text.count, "([{"))
    while spare > 0 and text and text[-1] in ")]}":
        text = text[:-1].rstrip("\\ ")
        spare -= 1
    return text


_EDGE = " .,;:\n\\"


def trim(text: str) -> str:
    """Without surrounding spaces, closing punctuation and stray line ends."""
    text = text.strip()
    while text and text[-1] in _EDGE:
        if text[-1] == "." and text.endswith(("p.m.", "a.m.")):
            break
        if text[-1] == "\\" and not text.endswith("\\\\") and len(text) > 1 and text[-2] == "\\":
            break
        text = text[:-1].rstrip()
    return text.lstrip(" ,;:")


def undollar(text: str) -> str:
    """Math delimiters removed: ``$``, ``\\(``, ``\\[``. An escaped ``\\$`` stays."""
    if "$" in text or "\\(" in text or "\\[" in text or "\\)" in text or "\\]" in text:
        text = re.sub(r"\\\$", "\0", text)
        text = re.sub(r"\$+|\\[()\[\]]", " ", text)
        text = re.sub(r" {2,}", " ", text).replace("\0", r"\$")
    return text.strip()


def ungroup(text: str) -> str:
    """Thousands separators removed where commas (or spaces) can only or may group digits.

    A comma right inside brackets separates entries, so ``(100,200)`` stays.
    """
    if "," in text:
        depth_at = _bracket_depth(text)

        def join(match: re.Match[str]) -> str:
            return match.group() if depth_at[match.start()] else match.group().replace(",", "")

        text = _GROUPED.sub(join, text)
    if " " in text:
        text = _SPACED.sub(lambda m: m.group().replace(" ", ""), text)
    return text


def _bracket_depth(text: str) -> list[bool]:
    """For each character: does it lie right inside ( ), [ ] or \\{ \\}?"""
    inside: list[bool] = []
    stack: list[bool] = []
    escaped = False
    for char in text:
        if char in "([" or (char == "{" and escaped):
            stack.append(True)
        elif char == "{":
            stack.append(False)
        elif char in ")]}" and stack:
            stack.pop()
        inside.append(bool(stack) and stack[-1])
        escaped = char == "\\" and not escaped
    return inside


def clean(text: str) -> str:
    """The normal form that is parsed and shown: no dress, no thousands separators."""
    plain = trim(undollar(markup(text)))
    if plain.isdigit():
        return plain
    return trim(balance(rewrite(ungroup(_unquote(plain)))))


def _unquote(text: str) -> str:
    """Without a Markdown heading, emphasis or quotation marks around everything."""
    text = text.lstrip("#").strip() if text[:1] == "#" else text
    while len(text) > 2 and text[0] == text[-1] and text[0] in "\"'*_":
        text = text[1:-1].strip()
    return text
