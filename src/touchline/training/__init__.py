"""Experience in, a better policy out. Sees arrays, never protobuf or MuJoCo."""
