"""Every kind of file is written with the user's umask: nothing more secret, nothing more open."""

import subprocess
import sys

MASKS = (0o022, 0o027, 0o077)

# In a process of its own, because the umask is the whole process's.
WRITER = """
import os, pathlib, sys
import torch
from PIL import Image
from torch import nn
import filtercov as fc
from filtercov.cli.app import app
from filtercov.files.weights import write_state_dict
from filtercov.lab.report.inspect import look
from filtercov.lab.report.page import write_output

torch.set_num_threads(1)
net = nn.Sequential(nn.Conv2d(8, 8, 5, groups=8))
for mask in sys.argv[2:]:
    os.umask(int(mask, 8))
    place = pathlib.Path(sys.argv[1]) / mask
    place.mkdir()
    for name in ("a.pth", "a.safetensors"):
        write_state_dict(net.state_dict(), place / name)
    fc.FilterStatistics.from_model(net).save(place / "a.stats")
    report = look(str(place / "a.pth"))
    write_output(place / "pages" / "inspect.html", report.page())
    write_output(place / "pages" / "table.csv", "a,b")
    if mask == sys.argv[2]:  # slow, and by the same function
        report.write_pngs(place / "pngs")
    for kind in ("cat", "dog"):
        for split in ("train", "test"):
            folder = place / "images" / split / kind
            folder.mkdir(parents=True)
            for i in range(4):
                Image.new("RGB", (8, 8), (60 * i, 0, 0)).save(folder / f"{i}.png")
    flags = "--model convmixer_8_1_k5_p2 --epochs 1 --batch-size 4 --augment light --model-ema"
    paths = ["--data", f"folder:{place / 'images'}", "--run-dir", str(place / "run")]
    app(["train", *flags.split(), *paths], standalone_mode=False)
"""


def test_files_and_directories_have_the_permissions_that_the_umask_gives(tmp_path):
    masks = [oct(mask)[2:] for mask in MASKS]
    done = subprocess.run([sys.executable, "-c", WRITER, tmp_path, *masks], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wrong = {}
    for mask, name in zip(MASKS, masks, strict=True):
        written = list((tmp_path / name).rglob("*"))
        names = {path.name for path in written}
        assert names >= {"a.pth", "a.safetensors", "a.stats", "inspect.html", "table.csv"}
        assert names >= {"checkpoint.safetensors", "ema.safetensors", "statistics.safetensors", "result.json"}
        assert names >= {"config.json", "metrics.jsonl", "lock", "manifest.json", "images.bytes"}
        for path in written:
            if path.stat().st_mode & 0o777 != (0o777 if path.is_dir() else 0o666) & ~mask:
                wrong[str(path.relative_to(tmp_path))] = oct(path.stat().st_mode)
    assert wrong == {}
