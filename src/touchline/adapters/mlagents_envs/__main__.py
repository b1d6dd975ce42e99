"""Run a program that was written for `mlagents_envs`, unchanged.

python -m touchline.adapters.mlagents_envs script.py arguments
"""

import runpy
import sys
from pathlib import Path

from touchline.adapters.mlagents_envs import take_the_name

if len(sys.argv) < 2:
    sys.exit("usage: python -m touchline.adapters.mlagents_envs script.py [arguments]")
sys.argv.pop(0)
# As `python script.py` does: the script's own folder comes first.
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
take_the_name()
runpy.run_path(sys.argv[0], run_name="__main__")
