"""What a heading says of its column: which quantity, in which unit, and of which bin.

Names       tau     tau, lag, lag time, delay, delay time; where none of these is there: time, t, dt, delta t (a capital
                    T only with a unit of time)
            q       q, Q, q value, scattering vector, wave vector, momentum transfer
            angle   angle, scattering angle, 2theta, theta (see `_optics.py` for which angle that is)
            phi     phi, azimuth
            g2      g2, g(2), g², g2(tau), g2 - 1; where none of these is there: correlation, autocorrelation,
                    correlation coefficient, ..., value
            g2_err  err, error, sigma, std, sd, stderr, sem, uncertainty, dg2, each alone or with g2; but not a relative
                    error, a variance or a weight
            bin     bin, q bin, roi, curve, record, channel
Units       in brackets of any kind, or after a space, underscore, slash, comma or `in`
Bins        a number or a label after the name (`g2_1`, `q3`), or values: `q=0.0020 1/A`, `g2 (q = 0.01, phi = 45)`,
            `0.0020`, `30 deg`
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from bayesfit.pipelines._unit_names import NUMBER, Unit, tidy, unit_of

NAMES = {  # word: names by rank; a rank counts only where none before it is there
    "tau": (
        r"correlation delay times?|lag ?times?|lags?|delay ?times?|delays?|time ?lags?|time ?delays?|tau",
        r"elapsed times?|times?|delta ?t|dt|t",
    ),
    "q": (
        r"q ?val(?:ue)?s?|q ?(?:mean|cent(?:er|re)|abs|vector)|\|q\|"
        r"|(?:scattering|wave) ?vectors?(?: q)?|momentum transfers?(?: q)?|q",
    ),
    "phi": (r"azimuth(?:al)?(?: angles?)?|phi(?: angle)?",),
    "angle": (r"(?:scattering |detection )?angles?|2 ?theta|two ?theta|tth|theta",),
    "g2": (
        r"(?:(?:mean|average|avg|norm|normali[sz]ed|intensity) )?g2(?: (?:mean|average|avg|norm|normali[sz]ed))?",
        r"(?:(?:intensity|normali[sz]ed) )?(?:auto ?)?correlations?(?: (?:coefficients?|functions?|data|values?))?"
        r"|acf|correlogram",
        r"values?",
    ),
    "bin": (
        r"q ?bins?(?: ?(?:index|number|no|id))?|bins?(?: ?(?:index|number|no|id))?|q ?index|roi|curve|record|channel",
    ),
    "wavelength": (r"wavelength|lambda",),
    "refractive_index": (r"refractive index(?: n)?|n ?(?:medium|solvent)",),
}
ERRORS = (
    r"standard (?:errors?|deviations?)|std ?err(?:or)?s?|std ?devs?|stdevs?|stds?|stderrs?|errors?|errs?|err(?=g2)"
    r"|sigmas?|uncertaint(?:y|ies)|uncert|unc"
)
ERROR = re.compile(rf"(?<![a-z])(?:{ERRORS})(?![a-z])(?: (?:of|in|on))?|(?<![a-z])(?:d|delta) ?(?=g2)")
ERRORS_ALONE = {"sd", "se", "sem", "e", "±", "+/-", "+-", "dg", "dg2"}
NO_ERROR = re.compile(r"(?<![a-z])(?:rel(?:ative)?|percent|variances?|var|squared)(?![a-z])|%|\^ ?2|²")
OTHER = re.compile(
    r"(?:sample )?temp(?:erature)?s?|weights?|intensit(?:y|ies)|i|counts?(?: ?rates?)?|fit(?:ted)?|model"
    r"|resid(?:ual)?s?|comments?|notes?|remarks?|dates?|files?(?: ?names?)?|samples?(?: ?names?)?|pairs"
    r"|n ?(?:pix(?:els)?|pairs)|pixels?|variances?|var|flags?|masks?|chi ?2|pressure|viscosity|repeats?|runs?"
    r"|\|?g1\|?(?: ?\^? ?2)?|isf|[sf]\(q,? ?(?:t|tau)\)|t"
    r"|.*(?<![a-z])(?:rel(?:ative)?|percent)(?![a-z]).*|.*%.*|.*\^ ?2"
)
INDEX = {"", "index", "no", "no.", "nr", "nr.", "#", "row", "point", "i", "unnamed: 0"}
NO_UNIT = re.compile(r"[\[(](?:-|1|a\.? ?u\.?|arb\.?(?: ?units?)?|dimensionless|none|unitless|)[\])]$")
VALUE = re.compile(
    r"(?P<word>q|phi|azimuth|angle|2 ?theta|theta|tau|t)\d*\s*(?:[\[(](?P<within>[^\])=]*)[\])])?\s*"
    rf"(?P<sign>=|:|~|)\s*(?P<number>{NUMBER})\s*(?P<after>.*)"
)
WORD_OF = {"azimuth": "phi", "2theta": "angle", "2 theta": "angle", "theta": "angle", "t": "tau"}


@dataclass(frozen=True)
class Heading:
    """A heading as the file has it (`text`), and what was understood.

    `word` is the quantity that it names, "" if none; `rank` is the place of the name among those accepted for the
    quantity. `label` distinguishes columns of one quantity. `values` are q, phi or angle of a bin, as the heading
    states them, with their units. `number` is a number that stands there alone. `strange` is a unit that was not
    understood. `minus_one` says that 1 is taken off g2."""

    text: str
    word: str = ""
    rank: int = 0
    unit: Unit | None = None
    strange: str = ""
    label: str = ""
    values: dict[str, tuple[float, Unit | None]] = field(default_factory=dict)
    number: float | None = None
    minus_one: bool = False

    @property
    def plain(self) -> bool:
        """Whether it names a quantity, and says nothing about a bin."""
        return bool(self.word) and not (self.label or self.values or self.number is not None)

    @property
    def other(self) -> bool:
        """Whether it names something that tables of g2 often hold and that is not used here."""
        return not self.word and bool(OTHER.fullmatch(tidy(self.text)))

    @property
    def key(self) -> object:
        """A value that is the same for all columns of one bin: for `g2_1` and `err_1`, or for `q1` and `q1 error`."""
        if self.values:
            return tuple((word, value) for word, (value, _) in sorted(self.values.items()))
        if self.number is not None:
            return self.number
        own = self.label or ("" if self.word else _label(tidy(self.text)))
        name = self.word if self.word not in ("g2", "g2_err", "tau") else ""
        return float(own) if own.isdecimal() and not name else name + own

    @property
    def index(self) -> bool:
        """Whether it may be the heading of row numbers."""
        return tidy(self.text) in INDEX


def understand_all(texts: Sequence[object]) -> list[Heading]:
    """The headings of a table, understood together: `g2-1` beside `g2-2` means the first of several columns, and a name
    that stands twice may have a number at its end (`err.1`), as pandas writes it."""
    names = [str(text).strip() for text in texts]
    numbered = any(re.fullmatch(r"g ?\(?2\)? ?- ?([2-9]|\d\d+)", tidy(name)) for name in names)
    found = []
    for name in names:
        twice = re.fullmatch(r"(.*)\.(\d+)", name)
        again = twice is not None and twice[1] in names and not re.fullmatch(NUMBER, name.lower())
        base = twice[1] if twice is not None and again else name
        heading = understand(re.sub(r"2\)? ?-", "2 ", base) if numbered else base)
        if again and heading.plain:
            heading = replace(heading, label=f".{twice[2]}" if twice else "")
        found.append(replace(heading, text=name))
    return found


@lru_cache(maxsize=10_000)
def understand(text: str) -> Heading:
    """What one heading says."""
    if corner(text) is not None:
        return Heading(text)
    pair = re.fullmatch(r"\((.*,.*)\)", tidy(text))  # as pandas writes a heading of two levels
    plain, minus_one = _without_arguments(pair[1].replace("'", "") if pair else tidy(text))
    plain = re.sub(r"(?<=\d)\s*,?\s*[\[(]?g2[\])]?$", "", plain)
    if plain in ERRORS_ALONE:
        return Heading(text, "g2_err")
    if ERROR.search(plain):
        return _of_errors(text, plain)
    if (values := _values(plain)) or _number(plain) is not None:
        return Heading(text, values=values, number=None if values else _number(plain))
    found = [_named(text, plain, word, rank) for word, ranks in NAMES.items() for rank in range(len(ranks))]
    candidates = [heading for heading in found if heading is not None]
    best = min(candidates, key=lambda heading: (bool(heading.strange), bool(heading.label)), default=None)
    return Heading(text) if best is None else replace(best, minus_one=minus_one and best.word == "g2")


def _without_arguments(plain: str) -> tuple[str, bool]:
    """The text with all spellings of g2 replaced by `g2`, and whether 1 is taken off it."""
    plain = re.sub(r"(?<![a-z])(d|delta )?g ?\^? ?(?:\( ?2 ?\)|2)", r"\1g2", plain)
    plain = re.sub(r"(?<=g2) ?[\[(] ?(?:\|?q\|? ?, ?)?(?:tau|t|q|delta t) ?[\])]", "", plain)
    shorter, count = re.subn(r"\( ?g2 ?- ?1 ?\)|g2 ?(?:- ?1(?![\d.])|minus (?:1|one)|m1)", "g2", plain)
    shorter = re.sub(r"^(.*correlation.*?) ?[\[(] ?g2 ?[\])]", r"\1", shorter)
    return " ".join(shorter.split()), count > 0


def _of_errors(text: str, plain: str) -> Heading:
    """A heading that holds a word for errors; the rest of it is the label of the bin. Errors of q or tau are not
    used."""
    rest = _bare(re.sub(r"\(\s*\)|\[\s*\]", "", ERROR.sub(" ", plain, count=1)))
    of = understand(rest)
    if NO_ERROR.search(rest) or (of.word in ("tau", "q", "phi", "angle") and of.plain):
        return Heading(text)
    label = of.label if of.word == "g2" or not rest else _label(rest)
    return replace(of, text=text, word="g2_err", rank=0, label=label)


def _named(text: str, plain: str, word: str, rank: int) -> Heading | None:
    """The heading understood as one of this quantity, or None."""
    match = re.match(rf"(?:{NAMES[word][rank]})(?![a-z|])", plain)
    if match is None:
        return None
    rest = NO_UNIT.sub("", plain[match.end() :]).strip()
    heading = Heading(text, word, rank)
    if not rest:
        return None if text.strip() == "T" else heading
    inside = re.match(r"[\[(]([^\])]*(?:\([^)]*\)[^\])]*)?)[\])]\s*(.*)", rest)
    if inside and (unit := unit_of(word, inside[1])):
        return _with_label(replace(heading, unit=unit), inside[2])
    after = re.fullmatch(r"(?:[ /,:.-]|in )*(.+)", rest)
    if after and (unit := unit_of(word, after[1])):
        return replace(heading, unit=unit)
    several = re.fullmatch(r"[ .:#\[(-]*(\d+)[\])]?(?: ?[/,]| in)? *(.+)", rest)
    if several and (unit := unit_of(word, several[2])):
        return replace(heading, unit=unit, label=several[1])
    if word == "q" and unit_of("wavelength", rest):  # a length, but q is an inverse length
        return replace(heading, strange=_bare(rest))
    if inside and word not in ("g2", "bin") and not inside[2] and not re.fullmatch(r"\d+", inside[1]):
        return replace(heading, strange=inside[1].strip())
    after = re.fullmatch(r"(?:/|,|in )\s*([a-zå%.]+(?:\s*\^?-?\d)?)|frames?", rest)
    if after and word not in ("g2", "bin"):
        return replace(heading, strange=after[1] or rest)
    free = word == "g2" or re.fullmatch(r"[ .:#\[(-]*\d+[\])]?", rest)
    return _with_label(heading, rest) if free else None


def _with_label(heading: Heading, rest: str) -> Heading:
    """The heading with the rest of its text as the label or the values of its bin."""
    rest = _bare(rest)
    if values := _values(rest):
        return replace(heading, values=values)
    if (number := _number(rest)) is not None and not re.fullmatch(r"\d+", rest):
        return replace(heading, number=number)
    return replace(heading, label=_label(rest))


def _label(rest: str) -> str:
    """A label in a form in which equal ones compare equal: `q1` and `q 1` are the same."""
    return re.sub(r"[\s_()\[\]]", "", re.sub(r"(?<![a-z])g2(?![\d])", "", rest)).strip("-:.,")


def _bare(text: str) -> str:
    """A text without the separators and brackets around it."""
    text = re.sub(r"^(?:[\s:,.@-]|(?:at|for|of) )+|[\s:,-]+$", "", text.strip())
    return text[1:-1].strip() if text[:1] in ("(", "[") and text[-1:] in (")", "]") else text


def _values(plain: str) -> dict[str, tuple[float, Unit | None]]:
    """The values of a bin that a text states, `q=0.01 1/a, phi=45`; none if the text says anything else as well."""
    text = _bare(re.sub(r"^g2(?=\W)", "", plain))
    found: dict[str, tuple[float, Unit | None]] = {}
    for part in re.split(r"[,;&]\s*|\s+(?=(?:q|phi|azimuth|angle|2 ?theta|theta)\b)", text):
        match = VALUE.fullmatch(part.strip())
        if match is None:
            return _alone(text)
        word = WORD_OF.get(match["word"], match["word"])
        unit_text = match["within"] or match["after"]
        unit = unit_of(word, unit_text) if unit_text else None
        if (unit_text and unit is None) or (not match["sign"] and re.fullmatch(r"\d+", match["number"])):
            return {}
        found[word] = (float(match["number"]), unit)
    return found


def _alone(text: str) -> dict[str, tuple[float, Unit | None]]:
    """A number with a unit, from which it follows which quantity it is."""
    match = re.fullmatch(rf"({NUMBER})\s*(.+)", text)
    for word in ("q", "angle", "tau") if match else ():
        if match and (unit := unit_of(word, match[2])):
            return {word: (float(match[1]), unit)}
    return {}


def _number(plain: str) -> float | None:
    return float(plain) if re.fullmatch(NUMBER, plain) else None


def corner(text: object) -> tuple[Heading, Heading] | None:
    """The two headings in a corner such as `tau [ms] \\ q [1/nm]`; None if it does not hold two."""
    name = str(text)
    for place in re.finditer(r"[\\/|]| vs\.? ", name):
        pair = understand(name[: place.start()]), understand(name[place.end() :])
        words = {heading.word for heading in pair if heading.plain}
        if "tau" in words and words & {"q", "angle"}:
            return pair
    return None
