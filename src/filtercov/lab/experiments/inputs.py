"""What a run reads, by content: a specification has only names, and what is behind a name can change."""

from functools import lru_cache
from pathlib import Path

from filtercov.errors import CheckpointError
from filtercov.files import file_sha256
from filtercov.lab.experiments.initialisations import find
from filtercov.lab.experiments.references import reference_key
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.training import read_result
from filtercov.statistics.shipped import locate

Inputs = dict[str, str]


def read_inputs(spec: RunSpec, content: str | None, *, init_root: Path | str = ".") -> Inputs:
    """Return the checksums of the images, `content`, of the file or run that filters come from, of registered code.

    What is not there is left out.

    >>> spec = RunSpec(model="convmixer_8_2_k5_p2", data="embedded", init="stats:nowhere")
    >>> read_inputs(spec, "0123")
    {'data': '0123'}
    """
    init = _initialisation(spec.init, Path(init_root))
    found = {"data": content, "init": init, "code": find(spec.init).code}
    return {name: checksum for name, checksum in found.items() if checksum is not None}


def changes(there: Inputs, here: Inputs) -> list[str]:
    """Say what differs between the inputs of a finished run and those that can be read now."""
    return [
        f"the content of its {name} is {there.get(name, 'unknown')[:12]}… there and {here[name][:12]}… here"
        for name in here
        if there.get(name) != here[name]
    ]


def _initialisation(init: str, root: Path) -> str | None:
    key = reference_key(init)
    if key is not None:
        result = read_result(root / key)
        return result.weights_sha256 if result else None
    _, _, argument = init.partition(":")
    entry = find(init)
    path = locate(argument, root) or root / argument if entry.name == "stats" else root / argument
    # Of what others registered an argument that is a file's name is one that it reads; ours say what theirs is.
    if not argument or (entry.ours and entry.argument != "FILE") or not path.is_file():
        return None
    try:
        about = path.stat()
        return _file_digest(path.absolute(), about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}; make it readable") from error


@lru_cache(maxsize=256)
def _file_digest(path: Path, *_version: int) -> str:
    """Return a file's SHA-256; its size, times and inode are asked for so that a changed file is read anew."""
    return file_sha256(path)
