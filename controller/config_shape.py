"""Turns pydantic's report on a document into problems that say what to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from controller.config_errors import KeyPath, Problem, instead_of, one_from, show
from controller.config_sections import CHECKS, NOT_BUILT_YET, BackendEntry, PoolEntry, Sections
from controller.probes import KINDS
from controller.section import Section
from controller.yaml_lines import Document

_CHOICES: tuple[type[Section], ...] = (*CHECKS, BackendEntry, PoolEntry)
# What pydantic puts into a location besides keys: the tag of a choice, and a mark for "the key itself".
_NOT_KEYS = {*(f"<{choice.__name__}>" for choice in _CHOICES), "[key]"}


def shape_problems(document: Document, error: ValidationError) -> Iterator[Problem]:
    """Every problem in `error`, at the key where the operator finds it."""
    for detail in error.errors(include_url=False):
        location = detail["loc"]
        path = tuple(part for part in location if part not in _NOT_KEYS)
        yield document.problem(path, _message(detail, location))


def _message(detail: ErrorDetails, location: KeyPath) -> str:
    given, context = show(detail["input"]), detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            return str(context["error"])
        case "missing":
            field = _section_at(location[:-1]).model_fields[str(location[-1])]
            return f"is missing; write {location[-1]}: {(field.examples or ['...'])[0]}"
        case "extra_forbidden":
            return _unknown_key(str(location[-1]), _section_at(location[:-1]))
        case "model_type":
            keys = ", ".join(_section_at(location).model_fields)
            return f"is {given}; write a mapping with keys of {keys}"
        case "dict_type":
            return f"is {given}; write a mapping, each key a name"
        case "tuple_type":
            return f"is {given}; write a list, such as [a, b]"
        case "too_short":
            return f"has {context['actual_length']} entries; write at least {context['min_length']}"
        case "too_long":
            return f"has too many entries; write at most {context['max_length']}"
        case _:
            return f"{detail['msg']}; write another value than {given}"


def _unknown_key(key: str, section: type[Section]) -> str:
    if key in NOT_BUILT_YET:
        return "is not built yet; leave it out"
    kinds = [name for name, kind in KINDS.items() if section in CHECKS and key in kind.section.model_fields]
    if kinds:
        return f"is a key of type {one_from(kinds)} only; leave it out, or write type: {kinds[0]}"
    return f"is not a key here; write {instead_of(key, section.model_fields, 'another')}"


def _section_at(location: KeyPath) -> type[Section]:
    """The section whose keys belong at `location`."""
    annotation: Any = Sections
    for part in location:
        annotation = _below(annotation, part)
    bare = _bare(annotation)
    assert isinstance(bare, type), "pydantic reports missing and unknown keys only in sections"
    assert issubclass(bare, Section), "every model of the configuration is a section"
    return bare


def _below(annotation: Any, part: str | int) -> Any:
    """What a value of this annotation holds under `part`: a key, a position, or the <Tag> of a choice."""
    bare = _bare(annotation)
    if isinstance(bare, type) and issubclass(bare, Section):
        return bare.model_fields[str(part)].annotation
    choices = get_args(bare)
    if get_origin(bare) is tuple:
        return choices[0]
    if get_origin(bare) is Mapping:
        return choices[1]
    return next(choice for choice in map(_bare, choices) if f"<{choice.__name__}>" == part)


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation
