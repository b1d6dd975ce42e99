"""Starts the official trainer, mlagents-learn 1.1.0, on a torch newer than it knows.

torch 2.9 made another ONNX exporter the default, which the trainer's last step cannot use. Run by
the Python that has `mlagents`, not by ours: with the arguments of mlagents-learn.
"""

import functools
import sys

import torch
from mlagents.trainers import learn

torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)

if __name__ == "__main__":
    sys.exit(learn.main())
