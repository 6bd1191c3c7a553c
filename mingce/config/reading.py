"""Defaults, then a recipe (YAML), then overrides; an unknown key is an error that offers the nearest one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mingce.base.errors import SettingError, UnknownNameError, first_line
from mingce.base.reading import parse_yaml, read_regular
from mingce.config.checks import check_config
from mingce.config.table import Config, settings


def read_config(recipe: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Defaults, then the recipe, then the overrides; checked as a whole."""
    config = merged_config(recipe, overrides)
    check_config(config)
    return config


def merged_config(recipe: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """The same, its names and types checked and nothing more, which needs no torch."""
    from omegaconf import OmegaConf

    layers = [OmegaConf.structured(Config)]
    if recipe is not None:
        layers.append(_read_recipe(Path(recipe)))
    layers += [_override(override) for override in overrides]
    for layer in layers[1:]:
        _known_keys(OmegaConf.to_container(layer))
    return _merged([layers[0], *(_listed(OmegaConf.to_container(layer)) for layer in layers[1:])])


def _merged(layers: Sequence[Any]) -> Config:
    """The settings of all layers, a later one over an earlier one; a wrong type is an error."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        config = OmegaConf.to_object(OmegaConf.merge(*layers))
    except (OmegaConfBaseException, ValueError, TypeError, RecursionError) as error:
        key = str(getattr(error, "full_key", "") or "a setting")
        raise SettingError(f"{key}: {first_line(error).rstrip('.')}.") from error
    assert isinstance(config, Config)
    return config


def _override(override: str) -> Any:
    """`key=value` as a layer."""
    from omegaconf import OmegaConf

    key, equals, value = override.partition("=")
    if not equals or not key:
        raise SettingError(f"'{override}' is not a setting; write key=value, such as lam=0.9.")
    key = _long(key)
    try:
        layer = OmegaConf.from_dotlist([f"{key}={value}"])
        OmegaConf.to_container(layer)
    except Exception as error:  # whatever the YAML reader and OmegaConf say
        raise SettingError(f"{key} cannot be read from '{override}' ({first_line(error).rstrip('.')}).") from error
    return layer


def config_of(values: dict[str, Any]) -> Config:
    """A configuration from the values a run stored."""
    from omegaconf import OmegaConf

    values = _renamed(values)
    _known_keys(values)
    return _merged([OmegaConf.structured(Config), _listed(values)])


def as_values(config: Config) -> dict[str, Any]:
    """The configuration as plain values, for config.yaml."""
    return asdict(config)


def _read_recipe(path: Path) -> Any:
    from omegaconf import OmegaConf

    try:
        text = read_regular(path)
        if isinstance(parse_yaml(text), dict):
            return OmegaConf.create(_renamed(OmegaConf.to_container(OmegaConf.create(text.decode()))))
    except (OSError, UnicodeDecodeError):
        raise SettingError(f"the recipe {path} cannot be read; give the path of a YAML file.") from None
    except Exception as error:  # whatever the YAML reader and OmegaConf say
        raise SettingError(f"the recipe {path} is not valid YAML: {first_line(error).rstrip('.')}.") from error
    raise SettingError(f"the recipe {path} must be a mapping of settings.")


def _renamed(values: Any) -> Any:
    """The values with `data.lang` where a run or a recipe made before has `lang`."""
    if "lang" not in values or not isinstance(values.get("data", {}), dict):
        return values
    rest = {name: value for name, value in values.items() if name != "lang"}
    return rest | {"data": {"lang": values["lang"]} | rest.get("data", {})}


def _listed(values: Any, prefix: str = "") -> Any:
    """The values with a list of one where a setting that takes several is given one, and an empty one for none."""
    several = {key for key, _, default in settings() if isinstance(default, list)}

    def listed(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return _listed(value, key + ".")
        return value if key not in several or isinstance(value, list) else [] if value is None else [value]

    return {name: listed(f"{prefix}{name}", value) for name, value in values.items()}


def _long(key: str) -> str:
    """`lam` for `credit.lam`, where the last part of the key is enough to know it."""
    keys = [known for known, _, _ in settings()]
    if key in keys or any(known.startswith(key + ".") for known in keys):
        return key
    short = [known for known in keys if known.rpartition(".")[2] == key]
    if len(short) == 1:
        return short[0]
    if len(short) > 1:
        raise SettingError(f"'{key}' may mean {' or '.join(short)}; write the whole key.")
    return key


def _known_keys(values: Any, prefix: str = "") -> None:
    """Every key of a layer is a setting, or the options of a task."""
    keys = [known for known, _, _ in settings()]
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in keys and any(known.startswith(key + ".") for known in keys):
            _known_keys(value, key + ".")
        elif key not in keys:
            known = [*keys, *(known.rpartition(".")[2] for known in keys)]
            raise UnknownNameError("setting", key, known, where=", which `mingce train --dry-run` prints")
