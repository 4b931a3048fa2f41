"""Mend torchvision for whoever has this folder on PYTHONPATH, which conftest.py puts there for children of the tests.

Beside a CPU build of torch its wheel lacks compiled operators, of which it describes two when it is imported: they are
declared here, and no test calls them. timm takes image transforms from it and so could not be imported either.
"""

import sys


class MendTorchvision:
    """Looks on as torchvision is imported, which imports torch before; finds nothing itself."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Declare the operators before the file that describes them is read, unless torchvision's library has them."""
        if name != "torchvision._meta_registrations":
            return
        import torch

        for operator in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, operator):
                schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                torch.library.define(f"torchvision::{operator}", schema)


sys.meta_path.insert(0, MendTorchvision)
