import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import yaml_lines
from controller.config_errors import ConfigError
from controller.yaml_lines import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-7", -7),
        ("0", 0),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ("~", None),
        ("'12'", "12"),
        ('"true"', "true"),
        ("yes", "yes"),
        ("off", "off"),
        ("012", "012"),
        ("0x10", "0x10"),
        ("12:34:56", "12:34:56"),
        ("1_000", "1_000"),
        ("1e3", "1e3"),
        ("2001-01-01", "2001-01-01"),
        ("1" * 32, "1" * 32),
        ("9" * 9999, "9" * 9999),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_a_plain_scalar_is_what_it_looks_like(text: str, value: object) -> None:
    read = parse(f"a: {text}", "f").value
    assert isinstance(read, dict)
    assert (type(read["a"]), read["a"]) == (type(value), value)


def test_every_key_and_entry_has_its_line() -> None:
    lines = parse("a:\n  b: 1\n  c:\n    - x\n    - {d: 1,\n       e: 2}\n", "f").lines
    assert lines[("a",)] == 1
    assert lines[("a", "b")] == 2
    assert lines[("a", "c", 0)] == 4
    assert lines[("a", "c", 1, "d")] == 5
    assert lines[("a", "c", 1, "e")] == 6


def test_a_problem_at_an_absent_key_is_told_at_the_nearest_one_above() -> None:
    document = parse("x: 1\na:\n  b: {}\n", "f")
    assert str(document.problem(("a", "b", "c"), "is missing")) == "f:3: a.b.c: is missing"
    assert str(document.problem(("z",), "is missing")) == "f:1: z: is missing"


def test_anchors_and_aliases_are_taken_in_measure() -> None:
    assert parse("a: &x {n: 1}\nb: *x\n", "f").value == {"a": {"n": 1}, "b": {"n": 1}}


def test_of_a_key_given_twice_the_first_counts_and_the_second_is_told() -> None:
    document = parse("a: 1\nb: 2\na: {a: 3, a: 4}\n", "f")
    assert document.value == {"a": 1, "b": 2}
    assert [(p.line, p.key) for p in document.problems] == [(3, "a"), (3, "a.a")]


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parse(text, "f")
    return str(refused.value)


def test_an_alias_bomb_is_stopped_while_it_is_read() -> None:
    layers = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 30))
    assert "l5: is beyond" not in refusal("l0: &l0 x\n" + layers)
    assert "aliases counted in full" in refusal("l0: &l0 x\n" + layers)


def test_too_many_aliases_are_refused() -> None:
    aliases = "- *x\n" * (yaml_lines.MAX_ALIASES + 1)
    assert f"alias number {yaml_lines.MAX_ALIASES + 1}" in refusal("- &x 1\n" + aliases)


def test_too_many_values_are_refused() -> None:
    assert "values, aliases counted in full" in refusal("[" + "1," * yaml_lines.MAX_NODES + "1]")


@pytest.mark.parametrize("bracket", ["[", "{a: ", "- "])
def test_too_deep_nesting_is_refused(bracket: str) -> None:
    assert "nested deeper than" in refusal(bracket * 200)


def test_a_large_file_is_refused_without_reading_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 32)
    with pytest.raises(ConfigError, match="is larger than 8 MiB"):
        yaml_lines.read(path)


YAMLISH = st.text(st.sampled_from(list("ab:-[]{}&*!|>'\"#%@,?~0 \n\t<\x00é")), max_size=60)


@settings(deadline=None)
@given(YAMLISH)
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse(text, "f")
