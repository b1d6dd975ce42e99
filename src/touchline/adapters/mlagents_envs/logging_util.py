"""Loggers that print to standard output in ML-Agents' format."""

import logging
import sys
from logging import CRITICAL as CRITICAL
from logging import DEBUG as DEBUG
from logging import ERROR as ERROR
from logging import FATAL as FATAL
from logging import INFO as INFO
from logging import NOTSET as NOTSET
from logging import WARNING as WARNING

DATE_FORMAT = "%Y-%m-%d %H:%M:%S"
LOG_FORMAT = "[%(levelname)s] %(message)s"
DEBUG_LOG_FORMAT = "%(asctime)s %(levelname)s [%(filename)s:%(lineno)d] %(message)s"

_handlers: dict[str, logging.Handler] = {}
"""The handler of each logger that was made here, by the logger's name."""
_level = NOTSET


def get_logger(name: str) -> logging.Logger:
    """The logger of this name, with the level that `set_log_level` set."""
    if name not in _handlers:
        _handlers[name] = logging.StreamHandler(sys.stdout)
        logging.getLogger(name).addHandler(_handlers[name])
    _configure(name)
    return logging.getLogger(name)


def set_log_level(log_level: int) -> None:
    """The level of all loggers made here, now and later."""
    global _level
    _level = log_level
    for name in _handlers:
        _configure(name)


def _configure(name: str) -> None:
    layout = DEBUG_LOG_FORMAT if _level == DEBUG else LOG_FORMAT
    _handlers[name].setFormatter(logging.Formatter(layout, DATE_FORMAT))
    if _level != NOTSET:
        logging.getLogger(name).setLevel(_level)
