"""Reading recipes from YAML, with dotted `key=value` overrides; every mistake is explained."""

from __future__ import annotations

import difflib
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from fastslow.base.errors import RecipeError
from fastslow.base.text import HIDDEN, one_line, quoted, redacted
from fastslow.models.tokenizer import context_length
from fastslow.recipe.former import explain_key, explain_value, section_of, translate
from fastslow.recipe.model import Recipe
from fastslow.recipe.parts import SLOTS, Part, Section, Slot, set_key
from fastslow.recipe.sections import FastRecipe, SamplingRecipe

MACHINE_SETTINGS = (
    "slow.microbatch",
    "sampling.batch",
    "sampling.backend.vllm",
    "model.gradient_checkpointing",
    "engine.base_url",
    "engine.save_every",
    "engine.timeout",
)
"""They fit a run to a machine, so they can be changed on resume. They do not change what a run learns, except that with
`sampling.ahead` the batch decides which answers are unfinished when a step ends: another one is another course of the run."""
LENGTH_SETTINGS = ("slow.steps", "rollouts", "slow.patience", "task.evaluations", "task.tokens", "task.seconds")
"""They say when a run ends. On resume they can be raised: nothing before the end depends on them, except that with
`sampling.ahead` the last steps begin fewer rollouts, or none, for the steps after them."""
GRADING_SETTINGS = ("grading.faulty", "grading.timeout")
"""They say how much a run bears of task code that fails or is slow. They can be changed on resume, so that a run that ended
because of them can continue."""

STDIN = Path("-")
"""Stands for standard input where a recipe file is expected."""

EMBEDDED = "nano"
"""The name of the embedded model, whatever folder of that name there is."""

LARGEST_FILE, MOST_VALUES, DEEPEST = 10**6, 10**5, 50
"""Limits of a recipe file: bytes, values with those that aliases repeat, nesting."""
LARGEST_NUMBER = 10**30
MOST_ALIASES = MOST_KEYS = LONGEST_KEY = 1000
"""And its aliases, the keys of a mapping with those that `<<` merges, and the characters of a key."""


class _Loader(yaml.SafeLoader):
    """YAML's own loader keeps the last of two equal keys and says nothing, repeats what aliases name without end, and reads
    1:30 as 90."""

    aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.aliases += self.check_event(yaml.AliasEvent)
        if self.aliases > MOST_ALIASES:
            raise ValueError(f"more than {MOST_ALIASES:,} aliases")
        return super().compose_node(parent, index)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MOST_KEYS:
            raise ValueError(f"a mapping with more than {MOST_KEYS:,} keys")

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":  # "<<" may be there several times, and other keys are refused
                continue
            line = key.start_mark.line + 1
            if key.value in first:
                lines = sorted({first[key.value], line})
                where = " and ".join(str(each) for each in lines)
                raise ValueError(
                    f"the key '{one_line(key.value, 60)}' is given twice (line{'s' * (len(lines) > 1)} {where}); "
                    "keep one, with all of its settings"
                )
            first[key.value] = line
        return node


def _number(read: Callable[[Any, yaml.ScalarNode], Any]) -> Callable[[Any, yaml.ScalarNode], Any]:
    return lambda loader, node: node.value if ":" in node.value else read(loader, node)


_Loader.add_constructor("tag:yaml.org,2002:int", _number(yaml.SafeLoader.construct_yaml_int))
_Loader.add_constructor("tag:yaml.org,2002:float", _number(yaml.SafeLoader.construct_yaml_float))


def _read_yaml(text: str) -> Any:
    return _plain(yaml.load(text, _Loader))


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file and apply `dotted.key=value` overrides, each value read as YAML.

    `-` reads standard input. Relative paths in the file are relative to its folder; those of overrides to the current
    folder, or else to the file's.
    """
    if not isinstance(path, str | os.PathLike):
        raise RecipeError(f"recipe is {quoted(path, 60)}; expected the path of a YAML file")
    path = Path(path)
    return _with_overrides(read_mapping(path), path, overrides)


def read_stored_recipe(path: str | Path, overrides: Sequence[str] = (), *, exact: bool = False) -> Recipe:
    """Read the recipe.yaml of a run folder, which may be of an earlier version: renamed keys are translated, removed ones
    dropped. With `exact`, a removed setting that was in use raises, because the run cannot be resumed as it began."""
    path = Path(path)
    data, removed = _read_stored(path)
    if exact and removed:
        used = ", ".join(f"{key}={value}" for key, value in removed.items())
        raise RecipeError(
            f"the run of '{path}' cannot be resumed: it uses {used}, which was removed; start a new run without it"
        )
    return _with_overrides(data, path, overrides, stored=True)


def removed_settings(path: str | Path) -> dict[str, Any]:
    """The settings in use in the recipe.yaml of a run folder that `read_stored_recipe` drops."""
    return _read_stored(Path(path))[1]


def _read_stored(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    data = _without_credentials(read_mapping(path))
    removed = translate(data, {key for key, _ in walk(Recipe)})
    return data, removed


def read_mapping(path: Path, largest: int = LARGEST_FILE) -> dict[str, Any]:
    """What a recipe file holds, as it stands there."""
    try:
        if path.exists() and not path.is_file() and not _is_stream(path):
            raise RecipeError(f"recipe '{path}' is not a file; give the path of a YAML file (recipes/ has some)")
        with open(0, "rb", closefd=False) if path == STDIN else path.open("rb") as file:
            text = file.read(largest + 1)
        if len(text) > largest:
            raise RecipeError(f"recipe '{path}' has more than {largest:,} bytes; is it a recipe?")
        data = _read_yaml(text.decode())
    except FileNotFoundError:
        raise RecipeError(f"no recipe file '{path}'; give the path of a YAML file (recipes/ has some)") from None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, yaml.YAMLError) as error:
        raise RecipeError(f"recipe '{path}' cannot be read as YAML: {one_line(error)}") from None
    if not isinstance(data, dict):
        raise RecipeError(
            f"recipe '{path}' holds {type(data).__name__}, expected a mapping with at least model and task"
        )
    return data


def _is_stream(path: Path) -> bool:
    """Standard input, or what a shell puts in the place of a file: `/dev/stdin`, `<(…)`."""
    return path == STDIN or path.is_relative_to("/dev")


def _folder_of(path: Path) -> Path:
    """The folder that a recipe's relative paths are relative to."""
    return Path.cwd() if _is_stream(path) else path.parent.resolve()


def _plain(value: Any) -> Any:
    """The value as a tree of its own: what YAML's aliases share is copied, up to a limit that no recipe reaches."""
    left = MOST_VALUES

    def copied(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > DEEPEST:
            raise ValueError(f"more than {MOST_VALUES:,} values, or nested more than {DEEPEST} deep")
        if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            raise ValueError("a number with more than 30 digits")
        if isinstance(value, dict):
            if unusual := [key for key in value if not isinstance(key, str)]:
                raise ValueError(f"the key {quoted(unusual[0], 60)} is not text")
            if long := [key for key in value if len(key) > LONGEST_KEY]:
                raise ValueError(f"the key {quoted(long[0], 60)} has {len(long[0]):,} characters")
            return {key: copied(inner, depth + 1) for key, inner in value.items()}
        return [copied(inner, depth + 1) for inner in value] if isinstance(value, list) else value

    return copied(value, 0)


def _with_overrides(data: dict[str, Any], path: Path, overrides: Sequence[str], *, stored: bool = False) -> Recipe:
    for override in overrides:
        key, value = read_setting(override)
        alone: dict[str, Any] = {}
        set_key(alone, key, value)
        _anchor(alone, Path.cwd())
        set_key(data, key, functools.reduce(dict.__getitem__, key.split("."), alone))
    _anchor(data, _folder_of(path))
    return build_recipe(data, stored=stored)


def _without_credentials(data: Any) -> Any:
    """Earlier versions stored addresses as they were given."""
    if isinstance(data, dict):
        return {key: _without_credentials(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_without_credentials(value) for value in data]
    return redacted(data).replace(f"{HIDDEN}@", "") if isinstance(data, str) else data


def make_recipe(
    settings: Mapping[str, Any], base: Recipe | Mapping[str, Any] | str | os.PathLike[str] | None = None
) -> Recipe:
    """A recipe from Python values: sections are mappings, and a key may be dotted (`"slow.steps": 3`).

    The settings are laid over `base`: a recipe, a mapping or the path of a file. A section changes only the keys that it
    gives; `task`, `stages` and an engine with its kind are replaced as a whole. Relative paths are those of the current
    folder.
    """
    data = _mapping_of(base)
    if isinstance(base, Mapping):
        data = _without_impossible(data, settings)
    for key, value in settings.items():
        changed = _plain_python(key, value)
        whole = key in ("task", "stages") or "." in key or (key == "engine" and "kind" in changed)
        if isinstance(changed, dict) and not whole:
            data.setdefault(key, {})
            for inner, setting in changed.items():
                set_key(data, f"{key}.{inner}", setting)
        else:
            set_key(data, key, changed)
    _anchor(data, Path.cwd())
    return build_recipe(data)


def _mapping_of(base: Any) -> dict[str, Any]:
    if base is None:
        return {}
    if isinstance(base, Recipe):
        return base.model_dump(mode="json")
    if isinstance(base, Mapping):
        return _plain_python("recipe", base)
    if isinstance(base, str | os.PathLike):
        data = read_mapping(Path(base))
        _anchor(data, _folder_of(Path(base)))
        return data
    raise RecipeError(
        f"recipe is of type {type(base).__name__}; expected a mapping, a Recipe or the path of a YAML file"
    )


def _plain_python(key: str, value: Any) -> Any:
    try:
        return _plain(_as_yaml(value))
    except (ValueError, RecursionError) as error:
        why = "it holds itself" if isinstance(error, RecursionError) else one_line(error)
        raise RecipeError(f"{key} cannot be a setting: {why}") from None


def _as_yaml(value: Any) -> Any:
    """A Python value as a recipe file would hold it."""
    if isinstance(value, Part):
        return {"name": value.name, **_as_yaml(value.options)}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {str(key): _as_yaml(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_yaml(inner) for inner in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def build_recipe(data: dict[str, Any], *, stored: bool = False) -> Recipe:
    """Validate a mapping into a recipe; all mistakes are listed in one error. Of a `stored` recipe no code is loaded that it
    names, and none that is missing."""
    data = data if stored else _following_model(data)
    try:
        return Recipe.model_validate(data, context={"stored": stored})
    except ValidationError as error:
        raise RecipeError("\n".join(_explain(problem, data) for problem in _meant(error.errors()))) from None


SECTIONS: Mapping[str, type[Section]] = {"sampling": SamplingRecipe, "fast": FastRecipe}
FITTED = {"sampling": 4, "fast": 2}
"""Sections whose `max_tokens` follows a model with a short context, and the share of that: 1 / N."""


def _context_of(data: Mapping[str, Any]) -> int | None:
    model = data.get("model")
    name = model.get("name") if isinstance(model, Mapping) else model
    return context_length(name) if isinstance(name, str) else None


def _following_model(data: dict[str, Any]) -> dict[str, Any]:
    """The recipe with defaults that fit a model whose context is known to be short."""
    if (context := _context_of(data)) is None:
        return data
    for name, share in FITTED.items():
        section, usual = data.get(name, {}), SECTIONS[name].model_fields["max_tokens"].default
        if isinstance(section, dict) and "max_tokens" not in section and context // share < usual:
            data = data | {name: {**section, "max_tokens": max(1, context // share)}}
    return data


def _without_impossible(base: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The base without limits of answers or texts that exceed the whole context of the model in the settings."""
    context = _context_of(settings if "model" in settings else base)
    found = dict(base)
    for name in FITTED if context else ():
        section = found.get(name)
        if isinstance(section, dict) and isinstance(section.get("max_tokens"), int) and section["max_tokens"] > context:
            found[name] = {key: value for key, value in section.items() if key != "max_tokens"}
    return found


def load_parts(recipe: Recipe) -> Recipe:
    """The recipe of a run folder with the code of its parts loaded: somebody has said that it can be trusted."""
    return build_recipe(recipe.model_dump(mode="json"))


def _anchor(data: dict[str, Any], folder: Path) -> None:
    """Make the paths of files in a folder absolute, so that a recipe works, and a run can be resumed, from any other."""

    def anchored(section: Any, key: str) -> None:
        value = section.get(key) if isinstance(section, dict) else None
        if isinstance(value, str) and value not in ("", EMBEDDED) and os.path.exists(folder / value):
            section[key] = str(folder / value)

    anchored(data, "model")
    anchored(data.get("model"), "name")

    def anchored_object(section: Any, key: Any) -> None:
        module, _, name = str(section[key]).rpartition(":")
        file = folder / (module if module.endswith(".py") else module.replace(".", "/") + ".py")
        if module and name and os.path.isfile(file):
            section[key] = f"{file}:{name}"

    lists = [tasks for tasks in (data.get("task"), data.get("stages")) if isinstance(tasks, list)]
    places: list[tuple[Any, Any]] = [(tasks, index) for tasks in lists for index in range(len(tasks))]
    named = [section_of(data, key) for key in ("task", *SLOTS)]
    for section, place in [*((section, name) for section, name in named if name in section), *places]:
        part = section[place]
        if isinstance(part, str):
            anchored_object(section, place)
        elif isinstance(part, dict):
            for key in part:
                if (
                    key in ("path", "code", "folder", "script")
                    or key.endswith("_path")
                    or (key == "model" and place == "reflection")
                ):
                    anchored(part, key)
                if key in ("name", "kind", "grader", "rewards", "agent", "environment") and part[key]:
                    anchored_object(part, key)
                if key in ("rewards", "tools") and isinstance(part[key], list):
                    for index in range(len(part[key])):
                        anchored_object(part[key], index)


def read_setting(override: str) -> tuple[str, Any]:
    key, separator, text = override.partition("=")
    if not separator or not key or len(key) > LONGEST_KEY:
        raise RecipeError(f"override '{one_line(override, 60)}' is not KEY=VALUE, e.g. slow.learning_rate=2e-6")
    try:
        return key, _read_yaml(text)
    except yaml.YAMLError:
        return key, text
    except (ValueError, TypeError, RecursionError) as error:
        raise RecipeError(f"override '{one_line(override, 60)}' cannot be read: {one_line(error)}") from None


_KIND = re.compile(r"TaskRecipe|VllmServers|str|bool|constrained-(int|float)|(list|dict|literal)\[.*\]")


def _meant(problems: Sequence[Any]) -> list[Any]:
    """pydantic reports a value of several possible types once per type; keep the type that matched furthest."""

    def split(problem: Any) -> tuple[tuple[Any, ...], Any]:
        where = problem["loc"]
        at = next((index for index, part in enumerate(where) if _KIND.fullmatch(str(part))), len(where))
        return where[:at], where[at : at + 1]

    places = [split(problem) for problem in problems]
    depths: dict[tuple[Any, ...], dict[Any, int]] = {}
    for problem, (key, kind) in zip(problems, places, strict=True):
        kinds = depths.setdefault(key, {})
        kinds[kind] = max(kinds.get(kind, 0), len(problem["loc"]))
    furthest = [depths[key][kind] == max(depths[key].values()) for key, kind in places]
    return [problem for problem, kept in zip(problems, furthest, strict=True) if kept]


def _explain(problem: Any, data: dict[str, Any]) -> str:
    unknown = problem["type"] == "extra_forbidden"
    where = [str(part) for part in problem["loc"] if part != "VllmServers"]
    dotted = ".".join(part for part in where if unknown or not _KIND.fullmatch(part))
    part = _part(dotted, data)
    if unknown:
        return explain_key(dotted) or f"unknown recipe key '{dotted}'; {_advice(dotted, part)}"
    expected = problem["ctx"]["expected"] if problem["type"] == "literal_error" else ""
    if expected and (former := explain_value(dotted, problem["input"], expected)):
        return former
    if problem["type"] == "missing" and part is not None:
        return f"{part[0].registry.what} '{part[1]}' needs {where[-1]}: set {dotted}=…"
    if problem["type"] == "missing":
        return f"the recipe has no '{dotted}'; add it ({dotted}: …)"
    if problem["type"] in ("model_type", "dict_type"):
        return f"{dotted}={quoted(problem['input'])}: expected a mapping of keys to values"
    message = problem["msg"].removeprefix("Value error, ")
    # What a section says of its keys names them.
    alone = not dotted or (problem["type"] == "value_error" and isinstance(problem["input"], Mapping))
    return message if alone else f"{dotted}={quoted(problem['input'])}: {message[0].lower()}{message[1:]}"


def _part(dotted: str, data: dict[str, Any]) -> tuple[Slot, Any] | None:
    """The slot whose part a key would be an option of, and the name of the part."""
    slot = SLOTS.get(dotted.rpartition(".")[0])
    if slot is None:
        return None
    return slot, slot.named(functools.reduce(dict.__getitem__, slot.key.split("."), data))[0]


def _advice(dotted: str, part: tuple[Slot, Any] | None) -> str:
    """What may have been meant by an unknown key: one of the same name elsewhere, else of a similar name, the same section
    first."""
    section, _, name = dotted.rpartition(".")
    keys = [key for key, _field in walk(Recipe)]
    for slot in SLOTS.values():
        place = keys.index(slot.key) + 1
        keys[place:place] = dict.fromkeys(f"{slot.key}.{option}" for _, option, _ in slot.known_options())
    if part is not None:
        slot, chosen = part
        if others := [other for other, option, _ in slot.known_options() if option == name]:
            have = f"{', '.join(others)} {'has' if len(others) == 1 else 'have'}"
            return f"{slot.registry.what} '{chosen}' has no such option, but {have}: set {slot.key}={others[0]}"
        keys += [f"{slot.key}.{option}" for option in slot.options(chosen).model_fields if option != "name"]
    known = [(key.rpartition("."), key) for key in dict.fromkeys(keys)]

    def called(names: Sequence[str]) -> list[str]:
        return [key for (_, _, last), key in known if last in names]

    def near(names: Sequence[str]) -> list[str]:
        return difflib.get_close_matches(name, names, n=1)

    beside = near([last for (parent, _, last), _ in known if parent == section])
    hint = (
        called([name])
        or [f"{section}.{last}" if section else last for last in beside]
        or called(near([last for (_, _, last), _ in known]))
    )
    return f"did you mean {' or '.join(hint)}?" if hint else "`docs/recipe.md` lists every key"


def walk(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every dotted key of a section with its field, depth first, in the order of definition; without the options of parts."""
    for name, field in section.model_fields.items():
        yield prefix + name, field
        for form in (field.annotation, *get_args(field.annotation)):
            inner = getattr(form, "__origin__", form)  # of Annotated[…]
            if isinstance(inner, type) and issubclass(inner, BaseModel) and not issubclass(inner, Part):
                yield from walk(inner, f"{prefix}{name}.")
                break


def dump_recipe(recipe: Recipe) -> str:
    text = yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
    return redacted(text)


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found
