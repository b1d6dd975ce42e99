"""The same worlds in other people's words: Gymnasium, PettingZoo, TorchRL. Translation only."""
