"""The version of this package: below every layer, so that any module may name it."""

__version__ = "0.2.0.dev0"
