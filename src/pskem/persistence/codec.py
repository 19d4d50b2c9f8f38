"""Convert objects of known types to a tree of JSON values and a list of arrays, and back."""

from __future__ import annotations

import inspect
import math
import re
import reprlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pskem.persistence.arrays import PLAIN_KINDS, CodecError, arranged, with_layout
from pskem.persistence.limits import check_keys
from pskem.persistence.types import COPIED, VALUES, field_names, known_name, known_type

#: None, bool, int, str, finite float, list of trees, or {tag: ...} for everything else.
Tree = Any

#: Number types that scikit-learn takes as parameters.
NUMBER_TYPES: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (float, int, np.float64, np.float32, np.int64, np.int32)
}
#: How NumPy writes the types of plain values, and of objects.
PLAIN_DTYPE = re.compile(rf".[{PLAIN_KINDS}]\d+|\|O")
#: Attributes that belong to a process, not to a model.
TRANSIENT = frozenset({"_skl_callbacks", "_callback_fit_ctx", "_parent_callback_ctx"})
DEEPEST = 50


def encode(value: Any, arrays: list[NDArray[Any]], where: str = "model", depth: int = 0) -> Tree:
    """Tree of a value; arrays are appended to the list, and the tree refers to their index."""
    if depth > DEEPEST:
        raise CodecError(f"{where} is nested too deeply to be saved, or refers to itself.")

    def inner(part: Any, name: str) -> Tree:
        return encode(part, arrays, f"{where}{name}", depth + 1)

    kind = type(value)
    if value is None or kind in (bool, int):
        return value
    if kind is str:
        return _text(value, where)
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is list:
        return [inner(part, f"[{i}]") for i, part in enumerate(value)]
    if kind is tuple:
        return {"tuple": [inner(part, f"[{i}]") for i, part in enumerate(value)]}
    if kind is dict:
        check_keys(value)
        return {"dict": [[inner(k, ".key"), inner(v, f"[{k!r}]")] for k, v in value.items()]}
    if kind is slice:
        return {"slice": [inner(p, ".part") for p in (value.start, value.stop, value.step)]}
    # Objects as a type are harmless: it says what an estimator was given, not what is in the file.
    if isinstance(value, np.dtype) and value.kind in PLAIN_KINDS + "O":
        return {"dtype": value.str}
    if isinstance(value, type) and value in NUMBER_TYPES.values():
        return {"type": value.__name__}
    if isinstance(value, np.generic) and value.dtype.kind in PLAIN_KINDS:
        return {"scalar": _append(np.asarray(value), arrays)}
    if kind is np.ndarray and value.dtype.kind in PLAIN_KINDS:
        written, strides = arranged(value)
        place = {"array": _append(written, arrays)}
        return place if strides is None else {**place, "strides": strides}
    if kind is np.ndarray and value.dtype == object:
        parts = [inner(part, f"[{i}]") for i, part in enumerate(value.ravel().tolist())]
        return {"objects": parts, "shape": list(value.shape)}
    if kind is np.random.RandomState:
        _, keys, position, has_gauss, gauss = value.get_state(legacy=True)
        return {"random_state": [_append(keys, arrays), position, has_gauss, gauss]}
    if VALUES.get(kind.__name__) is kind:
        state = {name: getattr(value, name) for name in field_names(kind)}
        return {kind.__name__: {name: inner(part, f".{name}") for name, part in state.items()}}
    name = known_name(value)
    if name is not None:
        state = {key: part for key, part in vars(value).items() if key not in TRANSIENT}
        _check_estimator(name, state, where)
        return {
            "estimator": name,
            "state": {key: inner(part, f".{key}") for key, part in state.items()},
        }
    raise CodecError(
        f"{where} is a {kind.__module__}.{kind.__qualname__}, which a model file cannot hold. It"
        " holds pskem's estimators, scikit-learn's common scalers, encoders, imputers, PCA and the"
        " like in pipelines and column transformers, and plain values: no functions and no types"
        " of other libraries, because loading them would mean running code. Of a search, save its"
        " best_estimator_."
    )


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise CodecError(f"{where} holds a text that is no valid Unicode: {error}.") from None
    return value


def _append(array: NDArray[Any], arrays: list[NDArray[Any]]) -> int:
    arrays.append(array)
    return len(arrays) - 1


def _check_estimator(name: str, state: dict[str, Any], where: str) -> None:
    """Refuse settings that would make an estimator read other files."""
    if state.get("memory") is not None:
        raise CodecError(
            f"{where} ({name}) caches in memory={state['memory']!r}, from which a fit would load"
            " pickles. Set memory=None."
        )


#: Each array is taken once and then replaced by None.
Arrays = list[NDArray[Any] | None]


def decode(tree: Tree, arrays: Arrays, depth: int = 0) -> Any:
    """Value of a tree. Raises CodecError for trees that :func:`encode` cannot produce."""
    if depth > DEEPEST:
        raise CodecError("it is nested too deeply")

    def inner(part: Tree) -> Any:
        return decode(part, arrays, depth + 1)

    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, list):
        return [inner(part) for part in tree]
    if not isinstance(tree, dict) or not tree:
        raise CodecError(f"it holds {reprlib.repr(tree)}")
    tag, content = next(iter(tree.items()))
    match tag:
        case "tuple":
            return tuple(inner(part) for part in content)
        case "dict":
            keys = [inner(key) for key, _ in content]
            check_keys(keys)
            return dict(zip(keys, (inner(value) for _, value in content), strict=True))
        case "slice":
            return slice(*(inner(part) for part in content))
        case "float" if content in ("nan", "inf", "-inf"):
            return float(content)
        case "dtype" if PLAIN_DTYPE.fullmatch(content):
            return np.dtype(content)
        case "type" if content in NUMBER_TYPES:
            return NUMBER_TYPES[content]
        case "scalar":
            return _take(content, arrays)[()]
        case "array":
            array = _take(content, arrays)
            return with_layout(array, tree["strides"]) if "strides" in tree else array
        case "objects":
            result = np.empty(len(content), dtype=object)
            result[:] = [inner(part) for part in content]
            return result.reshape([int(side) for side in tree["shape"]])
        case "random_state":
            return _random_state(content, arrays)
        case "estimator":
            return _estimator(content, {key: inner(part) for key, part in tree["state"].items()})
        case _ if tag in VALUES:
            state = {name: inner(part) for name, part in content.items()}
            if set(state) != set(field_names(VALUES[tag])):
                raise CodecError(f"it holds a {tag} with {reprlib.repr(sorted(state))}")
            for name, kinds in COPIED.get(tag, {}).items():
                if not isinstance(state[name], kinds):
                    raise CodecError(f"it holds a {tag} with {name} of another kind")
            return VALUES[tag](**state)
    raise CodecError(f"it holds {reprlib.repr(tag)}: {reprlib.repr(content)}, which is unknown")


def _take(index: Any, arrays: Arrays) -> NDArray[Any]:
    if type(index) is not int or not 0 <= index < len(arrays):
        raise CodecError(f"it refers to array {reprlib.repr(index)} of {len(arrays)}")
    array, arrays[index] = arrays[index], None
    if array is None:
        raise CodecError(f"it refers to array {index} twice")
    return array


def _random_state(content: Any, arrays: Arrays) -> np.random.RandomState:
    index, position, has_gauss, gauss = content
    if position not in range(625) or has_gauss not in (0, 1):
        raise CodecError(f"it holds a random state at position {reprlib.repr(position)}")
    state = np.random.RandomState()
    state.set_state(("MT19937", _take(index, arrays), int(position), int(has_gauss), float(gauss)))
    return state


def _estimator(name: Any, state: dict[str, Any]) -> Any:
    cls = known_type(name) if isinstance(name, str) else None
    if cls is None:
        raise CodecError(f"it holds a {reprlib.repr(name)}, which is not a known estimator")
    _check_estimator(name, state, "it")
    parameters = inspect.signature(cls).parameters.values()
    missing = [parameter for parameter in parameters if parameter.name not in state]
    # Parameters that a later version of scikit-learn added get their defaults.
    for parameter in missing:
        if parameter.default is parameter.empty or len(missing) > len(parameters) / 2:
            raise CodecError(f"it holds a {name} without {parameter.name}")
        state[parameter.name] = parameter.default
    estimator: Any = object.__new__(cls)
    vars(estimator).update(state)
    return estimator
