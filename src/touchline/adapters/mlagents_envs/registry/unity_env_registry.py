"""A mapping from names to entries that open environments."""

from collections.abc import Iterator, Mapping

from touchline.adapters.mlagents_envs.registry.base_registry_entry import (
    BaseRegistryEntry,
    SceneEntry,
)
from touchline.adapters.mlagents_envs.registry.binary_utils import (
    load_local_manifest,
    load_remote_manifest,
)
from touchline.adapters.mlagents_envs.registry.remote_registry_entry import (
    RemoteRegistryEntry,
)
from touchline.scenes import SCENES


class UnityEnvRegistry(Mapping[str, BaseRegistryEntry]):
    """Environments by name: `registry["3DBall"].make()`."""

    def __init__(self) -> None:
        self._entries: dict[str, BaseRegistryEntry] = {}
        self._unread: list[str] = []
        """Manifests, which are read when an entry is looked up."""

    def register(self, new_entry: BaseRegistryEntry) -> None:
        """Add an entry; one of the same name is replaced."""
        self._entries[new_entry.identifier] = new_entry

    def register_from_yaml(self, path_to_yaml: str) -> None:
        """Add the environments of a manifest, a file or an address.

        It is a mapping with the key `environments`, a list of name -> `expected_reward`,
        `description`, `linux_url`, `darwin_url`, `win_url`, and optionally `additional_args` and
        `tmp_dir`.
        """
        self._unread.append(path_to_yaml)

    def clear(self) -> None:
        self._entries.clear()
        self._unread.clear()

    def __getitem__(self, identifier: str) -> BaseRegistryEntry:
        self._read()
        if identifier not in self._entries:
            known = ", ".join(self._entries) or "none"
            raise KeyError(
                f"no environment {identifier!r} in the registry; there: {known}"
            )
        return self._entries[identifier]

    def __iter__(self) -> Iterator[str]:
        self._read()
        return iter(self._entries)

    def __len__(self) -> int:
        self._read()
        return len(self._entries)

    def _read(self) -> None:
        while self._unread:
            place = self._unread.pop(0)
            is_remote = place.startswith(("http://", "https://"))
            load = load_remote_manifest if is_remote else load_local_manifest
            for entry in load(place)["environments"]:
                for identifier, fields in entry.items():
                    self.register(RemoteRegistryEntry(identifier, **fields))


default_registry = UnityEnvRegistry()
"""Touchline's scenes. ML-Agents' own holds builds of them, under the same names."""

for _scene in SCENES:
    default_registry.register(
        SceneEntry(_scene, None, f"Touchline's rebuild of Unity's scene {_scene}.")
    )
