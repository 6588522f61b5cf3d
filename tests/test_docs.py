"""Documentation and hooks are inseparable: a hook without its section, or with other arguments, is red."""

from __future__ import annotations

import inspect
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from blumfeld.spi.hooks import Hooks
from campaigns.catalogue import CAMPAIGNS
from tests.everyday import for_each

ROOT = Path(__file__).resolve().parents[1]
HOOKS = {name: spec for name, spec in vars(Hooks).items() if name.startswith("blumfeld_")}


def headings() -> list[str]:
    """The second-level headings of docs/hooks.md."""
    return re.findall(r"^## `(.+)`$", (ROOT / "docs" / "hooks.md").read_text(), flags=re.M)


def test_every_hook_is_documented_with_its_arguments_in_order() -> None:
    """The headings are the specs, in the order of a broker's life."""
    expected = []
    for name, spec in HOOKS.items():
        arguments = [a for a in inspect.signature(spec).parameters if a != "self"]
        expected.append(f"{name}({', '.join(arguments)})")
    assert headings() == expected


@pytest.mark.parametrize("name", HOOKS)
def test_a_hooks_docstring_is_a_contract(name: str) -> None:
    """It says when it is called, and what each argument and the answer are."""
    spec = HOOKS[name]
    text = inspect.getdoc(spec) or ""
    assert "Called" in text
    for argument in inspect.signature(spec).parameters:
        assert argument == "self" or f":param {argument}:" in text
    if inspect.signature(spec).return_annotation not in ("None", None):
        assert ":return:" in text


DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "plugins").glob("*/README.md"),
        *(ROOT / name / "README.md" for name in ("kit", "bench", "builder")),
    ],
    key=str,
)


@for_each(DOCUMENTS)
def test_a_file_that_a_page_names_is_there(document: Path) -> None:
    """Paths in backticks, from the top, from core/, core/blumfeld/, kit/, bench/, plugins/ or a plug-in's folder."""
    homes = (
        "core",
        "core/blumfeld",
        "kit",
        "kit/blumfeld_kit",
        "bench",
        "bench/blumfeld_bench",
        "builder",
        "builder/blumfeld_builder",
        "plugins",
    )
    folders = [ROOT, *(ROOT / home for home in homes), document.parent]
    folders += [p for p in (ROOT / "plugins").iterdir() if p.is_dir()]
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
    named = re.findall(r"`([\w.-]+/[\w./-]*(?:\.(?:py|toml|md|txt)|/))`", prose)
    assert not [name for name in named if not any((folder / name).exists() for folder in folders)]


def tracked_texts() -> dict[str, str]:
    """Each text file of the project by its path. Without git (an unpacked sdist): what lies in the known folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\0")
    if listed == [""]:
        folders = (
            "core",
            "plugins",
            "kit",
            "bench",
            "builder",
            "campaigns",
            "tests",
            "docs",
            "tools",
            "examples",
        )
        all_paths = [*ROOT.glob("*.*"), *(path for name in folders for path in (ROOT / name).rglob("*.*"))]
        listed = [str(path.relative_to(ROOT)) for path in all_paths if "__pycache__" not in path.parts]
    paths = [path for path in listed if path and (ROOT / path).is_file()]
    texts = {}
    for path in paths:
        with suppress(UnicodeDecodeError):
            texts[path] = (ROOT / path).read_text()
    return texts


NOT_PAGES = {"acme.md"}
"""An Avro namespace in the tests of decoders: market data of a company Acme."""


def absent_documents(text: str, names: set[str]) -> list[str]:
    """Citations in ``text`` of a document that isn't here, of a bare section, or of a rule without a heading."""
    cited = re.findall(r"(?<![\w{}<>*%])[A-Za-z0-9][\w.-]*\.md\b(?!\w)", text)
    documents = [name for name in cited if name not in names | NOT_PAGES]
    documents += re.findall(r"§.{0,12}", text)
    documents += re.findall(r"\b[Dd]esign (?:rule|card)\b.{0,12}", text)
    documents += [
        f"design.md, rule {n}" for n in re.findall(r"design\.md, rule (\d+)", text) if int(n) not in RULES
    ]
    return documents


RULES = {
    int(number)
    for number in re.findall(r"^## Rule (\d+): ", (ROOT / "docs" / "design.md").read_text(), flags=re.M)
}


def test_a_document_that_isnt_here_is_found() -> None:
    """The search below would find each kind of citation that nobody can open."""
    here = {"design.md"}
    gone = "for" + "mats.md"
    assert absent_documents(f"(see {gone} \u00a716)", here) == [gone, "\u00a716)"]
    assert absent_documents("as design" + " rule 3 says", here)
    assert absent_documents("docs/design.md, rule 11", here) == ["design.md, rule 11"]
    assert not absent_documents("docs/design.md, rule 3; KIP-848", here)


def test_nothing_cites_a_document_that_isnt_in_the_tree() -> None:
    """A reader must be able to open what a line cites: a page of docs/, a KIP, a class of Kafka's."""
    texts = tracked_texts()
    names = {Path(path).name for path in texts}
    citations = [
        f"{path}: {cited}"
        for path, text in texts.items()
        if not path.startswith("tests/data/") and path != "tests/test_docs.py"
        for cited in absent_documents(text, names)
    ]
    assert not citations, "\n".join(citations)


def test_the_ten_rules_have_a_heading_each() -> None:
    """docs/design.md is cited by the numbers of its headings."""
    assert sorted(RULES) == list(range(1, 11))


def anchors(text: str) -> set[str]:
    """What links can point to in a page: its headings, as GitHub and most viewers name them."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    titles = re.findall(r"^#+ (.+)$", prose, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@for_each(DOCUMENTS)
def test_a_link_leads_somewhere(document: Path) -> None:
    """A relative link names a file or folder of the tree, and its anchor a heading of that page."""
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked_path = (document.parent / path).resolve() if path else document
        if not linked_path.exists() or (anchor and anchor not in anchors(linked_path.read_text())):
            dead.append(target)
    assert not dead


PAGE_BYTES_MAX = 150_000
"""What a command can write again, such as a page of a bench with plots, does not belong in the tree."""


def test_no_page_is_too_long_to_read() -> None:
    """A generated page of 500 KB is made by its command when somebody wants it."""
    large = {
        str(path.relative_to(ROOT)): path.stat().st_size
        for path in (ROOT / "docs").rglob("*")
        if path.is_file() and path.stat().st_size > PAGE_BYTES_MAX
    }
    assert not large


def commands_that_arent_there(text: str, targets: set[str]) -> list[str]:
    """Commands in ``text`` that nobody can type: a target the Makefile lacks, a campaign the list lacks."""
    made = re.findall(r"(?:`|^|&& )make ([a-z][\w-]*)", text, flags=re.M)
    run = re.findall(r"python -m campaigns ([a-z][\w.-]*)", text)
    return [f"make {name}" for name in made if name not in targets] + [
        f"python -m campaigns {name}" for name in run if name not in CAMPAIGNS
    ]


def test_a_command_that_isnt_there_is_found() -> None:
    """The search below would find a target and a campaign that are gone."""
    text = "`make {0}` and `make test`; python -m campaigns {0}, python -m campaigns clients".format("tea")
    assert commands_that_arent_there(text, {"test"}) == ["make tea", "python -m campaigns tea"]


def test_every_make_target_and_campaign_that_a_page_names_is_there() -> None:
    """CHANGELOG.md names what was there at its time."""
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), flags=re.M))
    commands = [
        f"{path}: {command}"
        for path, text in tracked_texts().items()
        if path.endswith((".md", ".py", ".toml")) and path not in ("CHANGELOG.md", "tests/test_docs.py")
        for command in commands_that_arent_there(text, targets)
    ]
    assert not commands, "\n".join(commands)


PROSE_COLUMNS_MAX = 120


def long_lines(text: str) -> list[int]:
    """Numbers of lines of prose that are too long to scan. Tables, code and a link without a space may be longer."""
    prose = re.sub(r"^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), text, flags=re.S | re.M)
    return [
        number
        for number, line in enumerate(prose.splitlines(), 1)
        if len(line) > PROSE_COLUMNS_MAX and not line.startswith(("|", "![")) and " " in line.strip("* ")
    ]


@pytest.mark.parametrize("folder", ["docs", "docs/adr"])
def test_an_index_has_every_page_of_its_folder(folder: str) -> None:
    """The two indexes are what a newcomer finds pages by."""
    index = (ROOT / folder / "README.md").read_text()
    pages = {path.name for path in (ROOT / folder).glob("*.md")} - {"README.md"}
    assert not {name for name in pages if f"({name})" not in index}


UNRELEASED_LINES_MAX = 240


def test_the_changelog_says_what_a_user_notices() -> None:
    """It is read before an upgrade. Git joins both sides of it, so a rebase over a rewrite brings the old text back."""
    unreleased = (ROOT / "CHANGELOG.md").read_text().partition("## Unreleased")[2].partition("\n## ")[0]
    lines = unreleased.count("\n")
    assert lines <= UNRELEASED_LINES_MAX, (
        f"{lines} lines are unreleased, {UNRELEASED_LINES_MAX} are allowed. After a rebase: take the file of main, and "
        "add your own line at the end of its group. Otherwise join lines of one subject."
    )


WRITTEN_BY_BENCH = ("rebalance.md",)


@for_each(sorted((ROOT / "docs").rglob("*.md")))
def test_a_page_can_be_scanned(page: Path) -> None:
    """Its paragraphs are broken into lines; what ``blumfeld bench report`` writes is left as it is."""
    if page.name not in WRITTEN_BY_BENCH:
        lines = long_lines(page.read_text())
        assert not lines, f"break these lines of {page.name} at about 110 characters: {lines}"
